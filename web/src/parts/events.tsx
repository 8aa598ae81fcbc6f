import { Badge, Group, Stack, Text } from "@mantine/core";
import { memo } from "react";
import { clock } from "../format";
import type { Fleet } from "../state/watch";
import { A, Empty } from "./basics";

/** Events lists what happened, the newest first. */
export const Events = memo(function Events({
  of: { events, past },
  max = 100,
  empty = "Nothing has happened yet.",
}: {
  of: Pick<Fleet, "events" | "past">;
  max?: number;
  empty?: string;
}) {
  if (events.length === 0) return <Empty>{past ? empty : "It is not known yet what happened before."}</Empty>;
  return (
    <Stack gap={6} component="ol" m={0} p={0} style={{ listStyle: "none" }} aria-label="Events, the newest first">
      {events
        .slice(-max)
        .reverse()
        .map((e) => (
          <Group key={e.seq} component="li" gap="xs" wrap="wrap" align="baseline">
            <Text size="xs" c="dimmed" component="time" dateTime={e.at} style={{ fontVariantNumeric: "tabular-nums" }}>
              {clock(e.at)}
            </Text>
            <Badge variant="light" color={e.type === "Warning" ? "orange" : "gray"} tt="none" radius="sm" size="sm">
              {e.reason}
            </Badge>
            <Text size="sm" style={{ flex: "1 1 240px", overflowWrap: "anywhere" }}>
              {e.text}
              {e.instance ? (
                <>
                  {" "}
                  <A to={"/instances/" + encodeURIComponent(e.instance)} size="sm">
                    {e.instance}
                  </A>
                </>
              ) : (
                e.app?.name && (
                  <>
                    {" "}
                    <A to={`/apps/${e.app.namespace}/${e.app.name}`} size="sm">
                      {e.app.name}
                    </A>
                  </>
                )
              )}
            </Text>
          </Group>
        ))}
    </Stack>
  );
});

import { Badge, Group, Select, Text, TextInput } from "@mantine/core";
import { useDeferredValue, useState } from "react";
import type { components } from "../api/schema";
import type { List } from "../api/types";
import { clock, count } from "../format";
import { IconSearch } from "../icons";
import { Loaded, Panel } from "../parts/basics";
import { useGet } from "../state/query";
import { Rows } from "./parts";

type AuditRecord = components["schemas"]["AuditRecord"];

/** newestFirst gives those records that hold a text, the newest first. */
export function newestFirst(list: AuditRecord[], text: string): AuditRecord[] {
  const want = text.trim().toLowerCase();
  return list
    .filter(
      (r) =>
        !want ||
        [r.user, r.token, r.operation, r.object, r.result, r.address].some((s) => s?.toLowerCase().includes(want)),
    )
    .sort((a, b) => b.seq - a.seq);
}

/** Audit shows who did what. */
export function Audit() {
  const [limit, setLimit] = useState("200");
  const [text, setText] = useState("");
  const want = useDeferredValue(text);
  const q = useGet<List<AuditRecord>>("/v1/audit", 10, { limit });
  const shown = newestFirst(q.data?.items ?? [], want);
  return (
    <Panel title="Audit log">
      <Group align="flex-end" mb="md">
        <TextInput
          label="Search"
          description="User, operation, object, result or address"
          value={text}
          onChange={(e) => setText(e.currentTarget.value)}
          leftSection={<IconSearch size={16} aria-hidden />}
          w={{ base: "100%", xs: 320 }}
        />
        <Select
          label="Of the last"
          data={["200", "1000", "5000"]}
          value={limit}
          onChange={(v) => v && setLimit(v)}
          allowDeselect={false}
          w={120}
        />
        <Text size="sm" role="status">
          {count(shown.length, "record")}
        </Text>
      </Group>
      <Loaded of={q}>
        {() => (
          <Rows
            label="Audit log"
            head={["When", "Who", "What", "Of", "Result", "From"]}
            empty="No record matches."
            rows={shown.map((r) => ({
              key: String(r.seq),
              cells: [
                clock(r.at),
                (r.user || "–") + (r.token ? ` by token ${r.token}` : ""),
                r.operation,
                r.object || "–",
                <Badge variant="light" color={r.result === "ok" ? "teal" : "orange"} tt="none">
                  {r.result}
                </Badge>,
                r.address,
              ],
            }))}
          />
        )}
      </Loaded>
    </Panel>
  );
}

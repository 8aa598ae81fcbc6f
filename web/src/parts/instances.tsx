import { Box, Text } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useRef } from "react";
import type { Instance } from "../api/types";
import { ago } from "../format";
import { whyNot } from "../state/trouble";
import { A, Empty } from "./basics";
import { instanceState, StateBadge } from "./state";

const row = 48;
const columns =
  "minmax(150px, 1.2fr) minmax(110px, 1fr) 150px minmax(80px, .7fr) minmax(80px, .7fr) 90px 70px 60px minmax(120px, 1.5fr)";

/** InstanceTable lists instances. Only the rows that are seen exist, so that ten thousand are as quick as ten. */
export const InstanceTable = memo(function InstanceTable({
  list,
  empty,
  label = "Instances",
}: {
  list: Instance[];
  empty: string;
  label?: string;
}) {
  const scroll = useRef<HTMLDivElement>(null);
  const v = useVirtualizer({
    count: list.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => row,
    overscan: 12,
    initialRect: { width: 1000, height: 600 },
  });
  if (list.length === 0) return <Empty>{empty}</Empty>;
  const head = (name: string) => (
    <Text role="columnheader" size="sm" fw={600} key={name}>
      {name}
    </Text>
  );
  return (
    <div ref={scroll} style={{ overflow: "auto", maxHeight: "70vh" }} tabIndex={0} role="region" aria-label={label}>
      <Box role="table" aria-label={label} aria-rowcount={list.length + 1} miw={980}>
        <Box
          role="row"
          aria-rowindex={1}
          px="md"
          py="xs"
          pos="sticky"
          top={0}
          bg="var(--mantine-color-body)"
          style={{
            display: "grid",
            gridTemplateColumns: columns,
            gap: 8,
            zIndex: 1,
            borderBottom: "1px solid var(--mantine-color-default-border)",
          }}
        >
          {["Instance", "Service", "State", "Cluster", "Worker", "Runtime", "Restarts", "Age", "Why"].map(head)}
        </Box>
        <Box role="rowgroup" pos="relative" h={v.getTotalSize()}>
          {v.getVirtualItems().map((it) => {
            const i = list[it.index]!;
            const why = whyNot(i);
            return (
              <Box
                key={i.id}
                role="row"
                aria-rowindex={it.index + 2}
                px="md"
                style={{
                  display: "grid",
                  gridTemplateColumns: columns,
                  gap: 8,
                  alignItems: "center",
                  position: "absolute",
                  top: 0,
                  left: 0,
                  right: 0,
                  height: row,
                  transform: `translateY(${it.start}px)`,
                  borderBottom: "1px solid var(--mantine-color-default-border)",
                }}
              >
                <Text role="cell" size="sm" truncate component="div">
                  <A to={"/instances/" + encodeURIComponent(i.id)}>{i.id}</A>
                </Text>
                <Text role="cell" size="sm" truncate>
                  {i.service.app.name}/{i.service.service}
                </Text>
                <div role="cell">
                  <StateBadge state={instanceState(i)} />
                </div>
                <Text role="cell" size="sm" truncate>
                  {i.cluster || "–"}
                </Text>
                <Text role="cell" size="sm" truncate>
                  {i.worker || "–"}
                </Text>
                <Text role="cell" size="sm">
                  {i.runtime || "–"}
                </Text>
                <Text role="cell" size="sm">
                  {i.restarts}
                </Text>
                <Text role="cell" size="sm">
                  {ago(i.createdAt)}
                </Text>
                <Text role="cell" size="sm" truncate title={why}>
                  {why || "–"}
                </Text>
              </Box>
            );
          })}
        </Box>
      </Box>
    </div>
  );
});

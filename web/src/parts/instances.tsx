import { Box, Switch, Text } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, type ReactNode, useRef, useState } from "react";
import type { Instance } from "../api/types";
import { ago, count } from "../format";
import { whyNot } from "../state/trouble";
import { A, Empty } from "./basics";
import { instanceState, StateBadge } from "./state";

const row = 48;

/** wide are the columns that a small screen leaves out; the instance's own page has them. */
const wide = new Set(["Service", "Cluster", "Worker", "Runtime", "Restarts", "Age"]);

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
    <Text role="columnheader" size="sm" fw={600} key={name} className={wide.has(name) ? "wide-only" : undefined}>
      {name}
    </Text>
  );
  return (
    <div
      ref={scroll}
      className="instances-wrap"
      style={{ overflow: "auto", maxHeight: "70vh" }}
      tabIndex={0}
      role="region"
      aria-label={label}
    >
      <Box role="table" aria-label={label} aria-rowcount={list.length + 1} className="instances">
        <Box
          role="row"
          aria-rowindex={1}
          px="md"
          py="xs"
          pos="sticky"
          top={0}
          bg="var(--mantine-color-body)"
          className="instances-row"
          style={{
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
                className="instances-row"
                style={{
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
                <Text role="cell" size="sm" truncate className="wide-only">
                  {i.service.app.name}/{i.service.service}
                </Text>
                <div role="cell">
                  <StateBadge state={instanceState(i)} />
                </div>
                <Text role="cell" size="sm" truncate className="wide-only">
                  {i.cluster || "–"}
                </Text>
                <Text role="cell" size="sm" truncate className="wide-only">
                  {i.worker || "–"}
                </Text>
                <Text role="cell" size="sm" className="wide-only">
                  {i.runtime || "–"}
                </Text>
                <Text role="cell" size="sm" className="wide-only">
                  {i.restarts}
                </Text>
                <Text role="cell" size="sm" className="wide-only">
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

/** Folded leaves out instances that have done their work, such as runs of yesterday, until somebody asks for them. */
export function Folded({
  list,
  off = false,
  children,
}: {
  list: Instance[];
  off?: boolean;
  children: (shown: Instance[]) => ReactNode;
}) {
  const [all, setAll] = useState(false);
  const going = list.filter((i) => i.state !== "Terminated");
  const done = list.length - going.length;
  return (
    <>
      {done > 0 && !off && (
        <Switch
          mb="sm"
          label={`Show ${count(done, "finished run")}`}
          checked={all}
          onChange={(e) => setAll(e.currentTarget.checked)}
        />
      )}
      {children(all || off ? list : going)}
    </>
  );
}

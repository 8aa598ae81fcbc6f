import "@xyflow/react/dist/style.css";
import { Box, Text, useComputedColorScheme } from "@mantine/core";
import {
  Background,
  type Connection,
  Controls,
  type Edge,
  Handle,
  MarkerType,
  type Node,
  type NodeProps,
  Position,
  ReactFlow,
} from "@xyflow/react";
import { useMemo, useState } from "react";
import type { Manifest, ServiceModel } from "./document";
import { layout, type Point } from "./layout";

interface Shown extends Record<string, unknown> {
  service: ServiceModel;
  wrong: boolean;
}

function ServiceNode({ data, selected }: NodeProps<Node<Shown>>) {
  const s = data.service;
  return (
    <Box
      p="xs"
      w={190}
      bg="var(--mantine-color-body)"
      style={{
        border: `2px solid ${data.wrong ? "var(--mantine-color-error)" : selected ? "var(--mantine-primary-color-filled)" : "var(--mantine-color-default-border)"}`,
        borderRadius: 8,
      }}
    >
      <Handle type="target" position={Position.Left} />
      <Text fw={600} size="sm" truncate>
        {s.name || "(no name)"}
      </Text>
      <Text size="xs" c="dimmed" truncate>
        {s.image || (Array.isArray(s.command) ? (s.command as string[]).join(" ") : "") || "no image yet"}
      </Text>
      <Text size="xs" c="dimmed">
        {s.mode && s.mode !== "service" ? s.mode : `${s.replicas ?? 1} ×`}{" "}
        {s.runtime && s.runtime !== "auto" ? s.runtime : ""}
        {data.wrong && " · not valid yet"}
      </Text>
      <Handle type="source" position={Position.Right} />
    </Box>
  );
}

const nodeTypes = { service: ServiceNode };

export interface Selected {
  service?: number;
  link?: { from: number; n: number };
}

/** Graph shows the services as nodes and what they talk to as edges; drawn edges become links of the manifest. */
export default function Graph({
  m,
  wrong,
  selected,
  onSelect,
  onChange,
}: {
  m: Manifest;
  wrong: Set<number>;
  selected: Selected;
  onSelect(s: Selected): void;
  onChange(m: Manifest): void;
}) {
  const scheme = useComputedColorScheme();
  const [moved, setMoved] = useState<Record<string, Point>>({});
  const places = useMemo(() => layout(m.services), [m.services]);
  const nodes: Node<Shown>[] = m.services.map((service, i) => ({
    id: String(i),
    type: "service",
    position: moved[service.name ?? ""] ?? places.get(service.name ?? "") ?? { x: 0, y: i * 120 },
    data: { service, wrong: wrong.has(i) },
    selected: selected.service === i,
    ariaLabel: `Service ${service.name}`,
  }));
  const edges: Edge[] = m.services.flatMap((s, from) =>
    (s.links ?? []).flatMap((l, n) => {
      const to = m.services.findIndex((x) => x.name === l?.service);
      if (to < 0) return [];
      const limits = [l.maxLatency && "≤ " + l.maxLatency, l.maxDistance !== undefined && `≤ ${l.maxDistance} km`]
        .filter(Boolean)
        .join(", ");
      return [
        {
          id: `${from}-${n}`,
          source: String(from),
          target: String(to),
          label: limits || undefined,
          labelStyle: { fontSize: 13 },
          selected: selected.link?.from === from && selected.link.n === n,
          markerEnd: { type: MarkerType.ArrowClosed },
          ariaLabel: `${s.name} talks to ${l.service}${limits && ", " + limits}`,
          interactionWidth: 24,
        },
      ];
    }),
  );
  return (
    <Box
      h={{ base: 320, md: 400 }}
      style={{ border: "1px solid var(--mantine-color-default-border)", borderRadius: 8 }}
      role="region"
      aria-label="Services and what they talk to"
    >
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={nodeTypes}
        colorMode={scheme}
        fitView
        fitViewOptions={{ maxZoom: 1, padding: 0.2 }}
        proOptions={{ hideAttribution: true }}
        onNodesChange={(changes) => {
          for (const c of changes) {
            const name = "id" in c ? (m.services[Number(c.id)]?.name ?? "") : "";
            if (c.type === "position" && c.position) setMoved((p) => ({ ...p, [name]: c.position! }));
            else if (c.type === "select" && c.selected) onSelect({ service: Number(c.id) });
          }
        }}
        onEdgesChange={(changes) => {
          for (const c of changes)
            if (c.type === "select" && c.selected) {
              const [from, n] = c.id.split("-").map(Number);
              onSelect({ link: { from: from!, n: n! } });
            }
        }}
        onNodesDelete={(gone) =>
          onChange(
            [...gone].sort((a, b) => Number(b.id) - Number(a.id)).reduce((x, n) => x.removeService(Number(n.id)), m),
          )
        }
        onEdgesDelete={(gone) =>
          onChange(
            gone
              .map((e) => e.id.split("-").map(Number) as [number, number])
              .sort((a, b) => b[1] - a[1])
              .reduce((x, [from, n]) => x.unlink(from, n), m),
          )
        }
        onConnect={(c: Connection) => {
          const next = m.link(Number(c.source), m.services[Number(c.target)]?.name ?? "");
          onChange(next);
          onSelect({ link: { from: Number(c.source), n: (next.services[Number(c.source)]?.links?.length ?? 1) - 1 } });
        }}
      >
        <Background />
        <Controls showInteractive={false} />
      </ReactFlow>
    </Box>
  );
}

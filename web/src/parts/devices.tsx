import { Badge, Table, Text } from "@mantine/core";
import { useMemo } from "react";
import type { Instance, WorkerView } from "../api/types";
import { count } from "../format";
import { useSession } from "../state/session";
import { useWatch } from "../state/watch";
import { A, Empty, Panel } from "./basics";
import { Words } from "./facts";

/** Attached is a device of a worker, with who has it. */
export interface Attached {
  name: string;
  class: string; // empty: it is offered by its path
  at: string;
  labels: string[];
  shares: number;
  gone: boolean; // an instance still has it
  instances: string[];
}

/** attached joins what a worker offers with what instances have, as `skerry get devices` does. */
export function attached(w: WorkerView, instances: readonly Instance[]): Attached[] {
  const offered = new Set(w.facts?.attachable ?? []);
  const details = new Map((w.facts?.deviceDetails ?? []).map((d) => [d.name, d]));
  const users = new Map<string, string[]>();
  for (const i of instances)
    if (i.worker === w.name) for (const d of i.devices ?? []) users.set(d, [...(users.get(d) ?? []), i.id].sort());
  return [...new Set([...offered, ...users.keys()])].sort().map((name) => {
    const more = details.get(name);
    return {
      name,
      class: name.startsWith("/") ? "" : name.split("=")[0]!,
      at: more?.at ?? "",
      labels: Object.entries(more?.labels ?? {})
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([k, v]) => `${k}=${v}`),
      shares: Math.max(more?.shares ?? 1, 1),
      gone: !offered.has(name),
      instances: users.get(name) ?? [],
    };
  });
}

/** DevicesOf shows the devices that a worker offers, and who has them. */
export function DevicesOf({ w }: { w: WorkerView }) {
  const { can } = useSession();
  return can("apps:read") ? <Shared w={w} /> : <List list={attached(w, [])} />;
}

function Shared({ w }: { w: WorkerView }) {
  const { client } = useSession();
  const fleet = useWatch(client, { kinds: ["instance"] });
  const list = useMemo(() => attached(w, [...fleet.instances.values()]), [w, fleet.instances]);
  return fleet.synced ? <List list={list} shared /> : <Text>Loading …</Text>;
}

function List({ list, shared }: { list: Attached[]; shared?: boolean }) {
  return (
    <Panel title={count(list.length, "device")} pad={list.length ? 0 : "md"}>
      {list.length === 0 ? (
        <Empty>
          It offers none. It offers what vendors describe in /etc/cdi, and what rules allow:{" "}
          <code>skerry worker --device-class serial</code>.
        </Empty>
      ) : (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Devices">
          <Table miw={760}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Class</Table.Th>
                <Table.Th>Name</Table.Th>
                <Table.Th>Labels</Table.Th>
                <Table.Th>Where</Table.Th>
                {shared && <Table.Th ta="right">Taken</Table.Th>}
                <Table.Th ta="right">Shares</Table.Th>
                {shared && <Table.Th>Instances</Table.Th>}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {list.map((d) => (
                <Table.Tr key={d.name}>
                  <Table.Td>{d.class || "–"}</Table.Td>
                  <Table.Td style={{ overflowWrap: "anywhere" }}>
                    {d.class ? d.name.slice(d.class.length + 1) : d.name}
                  </Table.Td>
                  <Table.Td>{d.labels.length ? <Words list={d.labels} /> : "–"}</Table.Td>
                  <Table.Td style={{ overflowWrap: "anywhere" }}>
                    {d.gone ? (
                      <Badge color="red" variant="light" tt="none">
                        gone
                      </Badge>
                    ) : (
                      d.at || "–"
                    )}
                  </Table.Td>
                  {shared && <Table.Td ta="right">{d.instances.length}</Table.Td>}
                  <Table.Td ta="right">{d.shares}</Table.Td>
                  {shared && (
                    <Table.Td>
                      {d.instances.map((id) => (
                        <div key={id}>
                          <A to={"/instances/" + encodeURIComponent(id)}>{id}</A>
                        </div>
                      ))}
                      {d.instances.length === 0 && "–"}
                    </Table.Td>
                  )}
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </div>
      )}
    </Panel>
  );
}

import { Badge, Button, Group, SimpleGrid, Stack, Table, Tabs, Text, Timeline } from "@mantine/core";
import { Suspense } from "react";
import { useNavigate, useParams, useSearchParams } from "react-router-dom";
import type { Explanation, Instance } from "../api/types";
import { ago, clock, span } from "../format";
import { A, Empty, Loaded, Page, Panel, useActs } from "../parts/basics";
import { Words } from "../parts/facts";
import { later } from "../parts/later";
import { Logs } from "../parts/logs";
import { MigrateButton } from "../parts/migrate";
import { instanceState, StateBadge } from "../parts/state";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { whyNot } from "../state/trouble";
import { useWatch } from "../state/watch";

const Terminal = later(() => import("../parts/terminal"));
const Metrics = later(() => import("../parts/metrics"));

/** InstancePage shows one instance: its journey, its logs, a terminal in it, its use, and why it is where it is. */
export default function InstancePage() {
  const { id = "" } = useParams();
  const { client, can } = useSession();
  const [params, setParams] = useSearchParams();
  const { ask } = useActs();
  const go = useNavigate();
  const q = useGet<Explanation>(`/v1/instances/${encodeURIComponent(id)}/explain`, 5);
  return (
    <Loaded of={q} title={id}>
      {(e) => (
        <Followed first={e.instance}>
          {(i) => (
            <Page
              title={i.id}
              sub={
                <Group gap="xs">
                  <StateBadge state={instanceState(i)} />
                  <span>
                    <A to={`/apps/${i.service.app.namespace}/${i.service.app.name}`}>
                      {i.service.app.name}/{i.service.service}
                    </A>{" "}
                    {i.cluster && "· cluster " + i.cluster} {i.worker && "· worker " + i.worker} · {ago(i.createdAt)}{" "}
                    old
                  </span>
                </Group>
              }
              actions={
                can("apps:write") && (
                  <>
                    {i.state === "Running" && !i.stopping && <MigrateButton i={i} />}
                    <Button
                      variant="default"
                      onClick={() =>
                        ask({
                          title: `Replace ${i.id}?`,
                          text: "The instance is stopped; its service replaces it.",
                          action: "Replace",
                          danger: true,
                          run: async () => {
                            await client.call("DELETE", `/v1/instances/${encodeURIComponent(i.id)}`);
                            go(`/apps/${i.service.app.namespace}/${i.service.app.name}?tab=instances`);
                          },
                          done: `${i.id} is being ended`,
                        })
                      }
                    >
                      Replace
                    </Button>
                  </>
                )
              }
            >
              <Tabs
                value={params.get("tab") ?? "state"}
                onChange={(t) => setParams(t && t !== "state" ? { tab: t } : {}, { replace: true })}
                keepMounted={false}
              >
                <Tabs.List mb="md">
                  <Tabs.Tab value="state">State</Tabs.Tab>
                  {can("apps:logs") && <Tabs.Tab value="logs">Logs</Tabs.Tab>}
                  {can("apps:exec") && <Tabs.Tab value="terminal">Terminal</Tabs.Tab>}
                  <Tabs.Tab value="metrics">Metrics</Tabs.Tab>
                  <Tabs.Tab value="placement">Placement</Tabs.Tab>
                </Tabs.List>
                <Tabs.Panel value="state">
                  <State i={i} />
                </Tabs.Panel>
                <Tabs.Panel value="logs">
                  <Panel>
                    <Logs id={i.id} running={i.state === "Running"} />
                  </Panel>
                </Tabs.Panel>
                <Tabs.Panel value="terminal">
                  <Suspense fallback={<Text>Loading …</Text>}>
                    <Terminal id={i.id} />
                  </Suspense>
                </Tabs.Panel>
                <Tabs.Panel value="metrics">
                  <Suspense fallback={<Text>Loading …</Text>}>
                    <Metrics id={i.id} />
                  </Suspense>
                </Tabs.Panel>
                <Tabs.Panel value="placement">
                  <Placement e={e} />
                </Tabs.Panel>
              </Tabs>
            </Page>
          )}
        </Followed>
      )}
    </Loaded>
  );
}

/** Followed gives an instance as it is now. */
function Followed({ first, children }: { first: Instance; children: (i: Instance) => React.ReactNode }) {
  const { client } = useSession();
  const { namespace, name } = first.service.app;
  const fleet = useWatch(client, { kinds: ["app", "instance", "event"], namespace, app: name });
  return <>{children(fleet.instances.get(first.id) ?? first)}</>;
}

function State({ i }: { i: Instance }) {
  const steps = i.timeline ?? [];
  const why = whyNot(i);
  const rows: [string, React.ReactNode][] = [
    ["Service", `${i.service.app.namespace}/${i.service.app.name}/${i.service.service}`],
    ["Cluster", i.cluster || "–"],
    ["Worker", i.worker || "–"],
    ["Runtime", i.runtime || "–"],
    ["Address", i.address || "–"],
    [
      "Ports",
      (i.ports ?? [])
        .map(
          (p) => `${p.name} ${p.port}/${p.protocol}${p.hostPort ? " at " + (p.address ?? "") + ":" + p.hostPort : ""}`,
        )
        .join(", ") || "–",
    ],
    ["Devices", i.devices?.length ? <Words list={i.devices} /> : "–"],
    ["Requested", `CPU ${i.resources?.cpu ?? "–"}, memory ${i.resources?.memory ?? "–"}`],
    ["Runtime overhead", i.overhead ? `CPU ${i.overhead.cpu ?? 0}, memory ${i.overhead.memory ?? 0}` : "–"],
    ["Image", i.digest || "–"],
    ["Version", `generation ${i.generation}, revision ${i.revision}`],
    ["Restarts", i.restarts],
  ];
  if (i.exit)
    rows.push([
      "Last end",
      `${clock(i.exit.at)}: ${i.exit.oomKilled ? "out of memory" : i.exit.storageExceeded ? "out of storage" : i.exit.signal ? "signal " + i.exit.signal : "exit status " + i.exit.code}${i.exit.message ? ", " + i.exit.message : ""}`,
    ]);
  return (
    <SimpleGrid cols={{ base: 1, lg: 2 }}>
      <Panel title="Life so far">
        {why && (
          <Text size="sm" mb="md">
            {why}
          </Text>
        )}
        <Timeline
          active={steps.length - 1}
          bulletSize={16}
          lineWidth={2}
          component="ol"
          style={{ listStyle: "none", margin: 0 }}
        >
          {steps.map((s, n) => (
            <Timeline.Item
              key={n}
              component="li"
              title={s.phase && s.phase !== s.state ? `${s.state}, ${s.phase}` : s.state}
            >
              <Text size="xs" c="dimmed">
                {clock(s.at)}
                {n > 0 && ` · ${span(Date.parse(s.at) - Date.parse(steps[n - 1]!.at))} after`}
              </Text>
              {s.text && <Text size="sm">{s.text}</Text>}
            </Timeline.Item>
          ))}
        </Timeline>
        <Group gap="xs" mt="md">
          {(i.conditions ?? []).map((c) => (
            <Badge key={c.type} variant="light" color={c.status ? "teal" : "orange"} tt="none" title={c.reason}>
              {c.type}: {c.status ? "yes" : "no"}
              {c.reason && ` (${c.reason})`}
            </Badge>
          ))}
        </Group>
      </Panel>
      <Panel title="Details">
        <Table>
          <Table.Tbody>
            {rows.map(([k, v]) => (
              <Table.Tr key={k}>
                <Table.Th fw={400} w={180}>
                  {k}
                </Table.Th>
                <Table.Td style={{ overflowWrap: "anywhere" }}>{v}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Panel>
    </SimpleGrid>
  );
}

function Placement({ e }: { e: Explanation }) {
  const d = e.decision;
  return (
    <Stack>
      <Panel title="Where">
        {d ? (
          <Stack gap="xs">
            <Text size="sm">
              {clock(d.at)}: the {d.tier} considered {d.considered} {d.tier === "root" ? "clusters" : "workers"} by the
              policy {d.policy}
              {d.chosen ? ` and chose ${d.chosen}` : " and found none"}
              {d.because && `, because ${d.because}`}.
            </Text>
            <div className="table-wrap">
              <Table>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>Candidate</Table.Th>
                    <Table.Th ta="right">Score</Table.Th>
                    <Table.Th>Why</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {(d.top ?? []).map((c) => (
                    <Table.Tr key={c.name}>
                      <Table.Td fw={c.chosen ? 700 : 400}>{c.name}</Table.Td>
                      <Table.Td ta="right">{c.score?.toFixed(3) ?? "–"}</Table.Td>
                      <Table.Td>{c.chosen ? "chosen" : c.out ? c.out.text : "another was better"}</Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </div>
            {(d.why ?? []).map((r, n) => (
              <Text key={n} size="sm">
                {r.text}
                {r.hint && ` – ${r.hint}`}
              </Text>
            ))}
          </Stack>
        ) : (
          <Empty>No decision has been made yet.</Empty>
        )}
      </Panel>
      {e.runtimes && (
        <Panel title="Runtimes that it could have, the cheapest first">
          <div className="table-wrap" tabIndex={0} role="region" aria-label="Runtimes">
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Runtime</Table.Th>
                  <Table.Th>Isolation</Table.Th>
                  <Table.Th ta="right">Memory overhead</Table.Th>
                  <Table.Th ta="right">CPU, of a container’s</Table.Th>
                  <Table.Th>Why not</Table.Th>
                  <Table.Th>Source</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {e.runtimes.map((r) => (
                  <Table.Tr key={r.runtime}>
                    <Table.Td fw={r.chosen ? 700 : 400}>
                      {r.runtime}
                      {r.chosen && " (chosen)"}
                    </Table.Td>
                    <Table.Td>{r.isolation}</Table.Td>
                    <Table.Td ta="right">{r.memory}</Table.Td>
                    <Table.Td ta="right">{r.processor.cpu ? "× " + r.processor.cpu.toFixed(2) : "not known"}</Table.Td>
                    <Table.Td>{r.out || r.crowded || "–"}</Table.Td>
                    <Table.Td>{r.processor.source || r.source}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
        </Panel>
      )}
    </Stack>
  );
}

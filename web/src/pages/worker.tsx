import { Alert, Badge, Group, SimpleGrid, Stack, Table, Tabs, Text } from "@mantine/core";
import { Suspense } from "react";
import { useParams, useSearchParams } from "react-router-dom";
import type { OverlayView, RuntimeReport, WorkerView } from "../api/types";
import { ago, bytes, clock, cores, count, parseBytes, parseCPU, span } from "../format";
import { A, Empty, Loaded, Page, Panel } from "../parts/basics";
import { DevicesOf } from "../parts/devices";
import { Drain } from "../parts/drain";
import { Credit, Facts, inNetwork, place, Words } from "../parts/facts";
import { later } from "../parts/later";
import { MemberActions } from "../parts/memberacts";
import { MemberInstances } from "../parts/members";
import { StateBadge } from "../parts/state";

import { memberState } from "../state/member";
import { useGet } from "../state/query";
import { useSession } from "../state/session";

const HistoryOf = later(() => import("../parts/history"));

/** WorkerPage shows one worker to the operator of its site. */
export default function WorkerPage() {
  const { name = "" } = useParams();
  const { can } = useSession();
  const [params, setParams] = useSearchParams();
  const path = "/v1/workers/" + encodeURIComponent(name);
  const q = useGet<WorkerView>(path, 3);
  return (
    <Loaded of={q} title={name}>
      {(w) => (
        <Page
          title={w.name}
          sub={
            <Group gap="xs">
              <StateBadge state={memberState(w)} />
              <span>
                for {ago(w.since)} · {count(w.instances, "instance")}
                {w.version && " · version " + w.version}
              </span>
            </Group>
          }
          actions={can("workers:write") && <MemberActions of="worker" w={w} path={path} reload={q.reload} />}
        >
          <Warnings w={w} />
          {w.drain && <Drain d={w.drain} />}
          <Tabs
            value={params.get("tab") ?? "state"}
            onChange={(t) => setParams(t && t !== "state" ? { tab: t } : {}, { replace: true })}
            keepMounted={false}
          >
            <Tabs.List mb="md">
              <Tabs.Tab value="state">State</Tabs.Tab>
              <Tabs.Tab value="history">History</Tabs.Tab>
              <Tabs.Tab value="runtimes">Runtimes</Tabs.Tab>
              <Tabs.Tab value="devices">Devices</Tabs.Tab>
              <Tabs.Tab value="overlay">Overlay</Tabs.Tab>
              {can("apps:read") && <Tabs.Tab value="instances">Instances</Tabs.Tab>}
              {can("events:read") && <Tabs.Tab value="events">Events</Tabs.Tab>}
            </Tabs.List>
            <Tabs.Panel value="state">
              <State w={w} />
            </Tabs.Panel>
            <Tabs.Panel value="history">
              <Suspense fallback={<Text>Loading …</Text>}>
                <HistoryOf worker={w.name} />
              </Suspense>
            </Tabs.Panel>
            <Tabs.Panel value="runtimes">
              <Panel title="Runtimes, as the worker tested them itself">
                <Runtimes list={w.facts?.runtimes ?? []} />
              </Panel>
            </Tabs.Panel>
            <Tabs.Panel value="devices">
              <DevicesOf w={w} />
            </Tabs.Panel>
            <Tabs.Panel value="overlay">
              <Overlay path={path} w={w} />
            </Tabs.Panel>
            <Tabs.Panel value="instances">
              <MemberInstances of="worker" name={w.name} part="instances" />
            </Tabs.Panel>
            <Tabs.Panel value="events">
              <MemberInstances of="worker" name={w.name} part="events" />
            </Tabs.Panel>
          </Tabs>
        </Page>
      )}
    </Loaded>
  );
}

/** Warnings says what keeps a worker from working as it could. */
function Warnings({ w }: { w: WorkerView }) {
  const list: string[] = [];
  if (w.lost)
    list.push(
      "It is lost" +
        (w.verdict ? ": " + w.verdict : "") +
        (w.cutOff ? ". Another worker reaches it: it is cut off from its cluster alone." : "."),
    );
  if (w.held) list.push("It is frozen and carries out nothing: " + w.held + ".");
  if (w.hold && !w.drain) list.push("Cordoned: " + w.hold + ".");
  if (w.refusing && !w.hold && !w.credit?.quarantine) list.push("It gets no new instances: " + w.refusing + ".");
  if (w.claims)
    list.push(
      `It says that it has ${cores(parseCPU(w.claims.cpu))} CPU and ${bytes(parseBytes(w.claims.memory))} memory, which is not believed; what it joined with counts.`,
    );
  const a = w.facts?.agent;
  if (a && a.stage !== "Passed")
    list.push(
      a.stage === "Failed"
        ? `Its agent keeps its previous program: ${a.why || "the new one failed"}.`
        : `Its agent goes over to another program${a.to ? ", version " + a.to : ""}: ${a.stage === "Fetching" ? "it is fetched" : "it works under the eyes of the old one"}.`,
    );
  if (!list.length) return null;
  return (
    <Alert color="orange" variant="light" title="It does not work as usual">
      {list.map((t) => (
        <div key={t}>{t}</div>
      ))}
    </Alert>
  );
}

function State({ w }: { w: WorkerView }) {
  const f = w.facts;
  const u = w.updates;
  return (
    <Stack>
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        <Panel title="Device">
          {f ? (
            <Facts
              rows={[
                ["Architecture", `${f.os}/${f.arch}`],
                ["Kernel", f.kernel],
                ["Address", f.address],
                ["Area", f.area],
                ["Location", place(f.location)],
                [
                  "Labels",
                  f.labels && Object.keys(f.labels).length > 0 && (
                    <Words list={Object.entries(f.labels).map(([k, v]) => (v ? `${k}=${v}` : k))} />
                  ),
                ],
                ["Taints", f.taints?.length ? <Words list={f.taints} /> : undefined],
                ["Devices", f.devices?.length ? <Words list={f.devices} /> : undefined],
                ["Power", f.power && `${f.power.idle} W idle, ${f.power.busy} W busy`],
                ["Machine", w.machine],
                ["Agent", f.version ?? w.version],
              ]}
            />
          ) : (
            <Empty>It has not reported its device yet.</Empty>
          )}
        </Panel>
        <Panel title="Connection">
          <Facts
            rows={[
              ["By", w.carrier === "mqtt" ? "MQTT, an external agent" : "the link"],
              [
                "Heartbeats",
                w.carrier ? undefined : w.beats ? "received" : "none received: only its connection is watched",
              ],
              ["Reported", w.reportAt && `${clock(w.reportAt)}, ${ago(w.reportAt)} ago`],
              [
                "Reports each",
                u &&
                  (u.everyMs
                    ? `${span(u.everyMs)} (${u.why}${u.near ? ", near the limit of " + u.near : ""})`
                    : "it has just begun"),
              ],
              ["In the network", inNetwork(w.coordinate)],
            ]}
          />
        </Panel>
      </SimpleGrid>
      <Panel title="Room">
        <Room w={w} />
      </Panel>
      <Credit credit={w.credit} />
    </Stack>
  );
}

type Kind = "cpu" | "memory" | "storage" | "bandwidthIn" | "bandwidthOut" | "gpus" | "tpus";

const kinds: [Kind, string, (v: unknown) => string][] = [
  ["cpu", "CPU", (v) => cores(parseCPU(v as string))],
  ["memory", "Memory", (v) => bytes(parseBytes(v as string))],
  ["storage", "Storage", (v) => bytes(parseBytes(v as string))],
  ["bandwidthIn", "Received per second", (v) => bytes(parseBytes(v as string))],
  ["bandwidthOut", "Sent per second", (v) => bytes(parseBytes(v as string))],
  ["gpus", "Graphics processors", (v) => String(v ?? 0)],
  ["tpus", "Tensor processors", (v) => String(v ?? 0)],
];

function Room({ w }: { w: WorkerView }) {
  const shown = kinds.filter(
    ([k]) => k === "cpu" || k === "memory" || [w.facts?.capacity, w.reserved, w.used].some((r) => r?.[k]),
  );
  return (
    <div className="table-wrap" tabIndex={0} role="region" aria-label="Room">
      <Table miw={520}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Of what</Table.Th>
            <Table.Th ta="right">Capacity</Table.Th>
            <Table.Th ta="right">Requested</Table.Th>
            <Table.Th ta="right">Available</Table.Th>
            <Table.Th ta="right">In use by the whole machine</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {shown.map(([k, label, tell]) => (
            <Table.Tr key={k}>
              <Table.Th fw={400}>{label}</Table.Th>
              <Table.Td ta="right">{tell(w.facts?.capacity[k])}</Table.Td>
              <Table.Td ta="right">{tell(w.reserved[k])}</Table.Td>
              <Table.Td ta="right">{tell(w.available[k])}</Table.Td>
              <Table.Td ta="right">{w.used[k] === undefined ? "–" : tell(w.used[k])}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

/** verdict is how a runtime came out of the worker's self-test. */
export function verdict(r: RuntimeReport): "works" | "is not there" | "does not work" {
  return r.passed ? "works" : r.absent ? "is not there" : "does not work";
}

function Runtimes({ list }: { list: readonly RuntimeReport[] }) {
  if (list.length === 0) return <Empty>It has reported no runtimes.</Empty>;
  const rank = (r: RuntimeReport) => (r.passed ? 0 : r.absent ? 2 : 1);
  return (
    <div className="table-wrap" tabIndex={0} role="region" aria-label="Runtimes">
      <Table miw={920} verticalSpacing="sm">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Runtime</Table.Th>
            <Table.Th>Self-test</Table.Th>
            <Table.Th>Version</Table.Th>
            <Table.Th ta="right">CPU, of a container’s</Table.Th>
            <Table.Th ta="right">Speed, by the clock</Table.Th>
            <Table.Th>What is missing, and what helps; else what it can</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {[...list]
            .sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name))
            .map((r) => (
              <Table.Tr key={r.name}>
                <Table.Td fw={600}>{r.name}</Table.Td>
                <Table.Td>
                  <Badge
                    tt="none"
                    radius="sm"
                    variant="light"
                    color={r.passed ? "teal" : r.absent ? "gray" : "red"}
                    styles={{ label: { overflow: "visible" } }}
                  >
                    {verdict(r)}
                  </Badge>
                  {r.emulated && (
                    <Text size="xs" c="dimmed">
                      by an emulated processor
                    </Text>
                  )}
                </Table.Td>
                <Table.Td maw={200} style={{ overflowWrap: "anywhere" }}>
                  {r.version || "–"}
                </Table.Td>
                <Table.Td ta="right">
                  {r.profile ? "× " + r.profile.cpu.toFixed(2) : r.passed ? "not measured" : "–"}
                  {r.profile && (
                    <Text size="xs" c="dimmed">
                      {ago(r.profile.at)} ago
                    </Text>
                  )}
                </Table.Td>
                <Table.Td ta="right">
                  <Speed of={r.profile} />
                </Table.Td>
                <Table.Td>
                  {r.passed ? (
                    <Text size="sm" c="dimmed">
                      {(r.abilities ?? []).join(", ")}
                    </Text>
                  ) : (
                    <>
                      <Text size="sm">{r.cause || "it does not say"}</Text>
                      {r.cure && (
                        <Text size="sm" c="dimmed">
                          {r.cure}
                        </Text>
                      )}
                    </>
                  )}
                </Table.Td>
              </Table.Tr>
            ))}
        </Table.Tbody>
      </Table>
      {list.some((r) => r.profile) && (
        <Text size="xs" c="dimmed" p="sm">
          Measured by the worker itself (skerry worker profile). CPU: processor time for the same work, as a multiple of
          what a container takes; others on the machine matter little to it. Speed: requests of that work that one
          processor answers in a second, where quotas, neighbours and heat count. Given: how much of a processor it had
          meanwhile. Apart: the largest rate less the smallest, of their median. Above {percent(maxSpread)} in
          containers, how fast the machine is does not count in placement.
        </Text>
      )}
    </div>
  );
}

/** maxSpread is MaxProfileSpread of the server: up to which spread the rate of a profile counts. */
const maxSpread = 0.5;

function percent(v: number): string {
  return Math.round(100 * v) + " %";
}

/** Speed is how fast a runtime was by the clock, and how far that can be believed. */
function Speed({ of: p }: { of: RuntimeReport["profile"] }) {
  if (!p) return <>–</>;
  if (!p.rate) return <>not measured</>; // by an older worker
  const apart = p.spread ?? 0;
  return (
    <>
      {p.rate.toLocaleString(undefined, { maximumSignificantDigits: 3 })} /s
      <Text size="xs" c="dimmed">
        {percent(p.share ?? 0)} of a processor given
      </Text>
      <Text size="xs" c={apart > maxSpread ? "orange" : "dimmed"}>
        {percent(apart)} apart{apart > maxSpread ? ": too far to count" : ""}
      </Text>
    </>
  );
}

/** ways are the kinds of paths, in words; a path's own reason says why it is not a better one. */
const ways: Record<string, string> = {
  plain: "plain, over a trusted network",
  wireguard: "sealed, by the kernel’s WireGuard",
  direct: "sealed, direct",
  relay: "sealed, by a relay",
  none: "none works now",
};

function Overlay({ path, w }: { path: string; w: WorkerView }) {
  const q = useGet<OverlayView>(w.connected && !w.carrier ? path + "/overlay" : null, 5);
  if (!w.connected || w.carrier)
    return (
      <Panel>
        <Empty>
          {w.carrier
            ? "An external agent takes no part in the overlay."
            : "The worker is not connected, so it cannot be asked."}
        </Empty>
      </Panel>
    );
  return (
    <Loaded of={q}>
      {(o) =>
        o.off ? (
          <Panel>
            <Empty>It takes no part in the overlay: {o.off}.</Empty>
          </Panel>
        ) : (
          <Stack>
            <Panel title="Datapath">
              <Facts
                rows={[
                  ["Packets", o.handling],
                  ["Why not better", o.why],
                  ["Cipher", o.cipher],
                  ["WireGuard", o.noWireguard ? "not used: " + o.noWireguard : "the kernel’s"],
                  ["Service addresses", o.services.toLocaleString()],
                  ["TCP flows", `${o.flows.toLocaleString()} of at most ${o.flowsMax.toLocaleString()}`],
                  [
                    "Relays",
                    (o.relays ?? [])
                      .map(
                        (r) =>
                          `${r.name}: ${r.over ? "by " + r.over : "not registered"}${r.reason ? ", " + r.reason : ""}`,
                      )
                      .join("; "),
                  ],
                ]}
              />
            </Panel>
            <Panel title="Paths to peers">
              {(o.peers ?? []).length === 0 ? (
                <Empty>
                  It exchanges packets with nobody now: paths are made when services here and elsewhere have to do with
                  each other.
                </Empty>
              ) : (
                <div className="table-wrap" tabIndex={0} role="region" aria-label="Paths to peers">
                  <Table miw={820}>
                    <Table.Thead>
                      <Table.Tr>
                        <Table.Th>Peer</Table.Th>
                        <Table.Th>Path</Table.Th>
                        <Table.Th>Endpoint</Table.Th>
                        <Table.Th ta="right">Round trip</Table.Th>
                        <Table.Th ta="right">Lost</Table.Th>
                        <Table.Th ta="right">Sent</Table.Th>
                        <Table.Th ta="right">Received</Table.Th>
                        <Table.Th>Why not better</Table.Th>
                      </Table.Tr>
                    </Table.Thead>
                    <Table.Tbody>
                      {o.peers!.map((p) => (
                        <Table.Tr key={p.peer}>
                          <Table.Td>
                            {p.name ? (
                              <A to={"/workers/" + encodeURIComponent(p.name)}>{p.name}</A>
                            ) : (
                              "#" + p.peer + " (another site)"
                            )}
                          </Table.Td>
                          <Table.Td>{ways[p.path] ?? p.path}</Table.Td>
                          <Table.Td className="mono">{p.endpoint || "–"}</Table.Td>
                          <Table.Td ta="right">{p.rttMs ? p.rttMs.toFixed(2) + " ms" : "–"}</Table.Td>
                          <Table.Td ta="right">{p.rttMs ? (100 * (p.loss ?? 0)).toFixed(1) + " %" : "–"}</Table.Td>
                          <Table.Td ta="right">{bytes(p.txBytes)}</Table.Td>
                          <Table.Td ta="right">{bytes(p.rxBytes)}</Table.Td>
                          <Table.Td>{p.reason || "–"}</Table.Td>
                        </Table.Tr>
                      ))}
                    </Table.Tbody>
                  </Table>
                </div>
              )}
              {o.more ? (
                <Text size="sm" mt="xs">
                  {count(o.more, "peer")} more; <code>skerry worker status</code> on the device lists all.
                </Text>
              ) : null}
            </Panel>
          </Stack>
        )
      }
    </Loaded>
  );
}

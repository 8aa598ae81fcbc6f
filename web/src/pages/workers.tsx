import { Button, Group, Modal, Stack, Table, Tabs, Text } from "@mantine/core";
import { Suspense, useState } from "react";
import { useSearchParams } from "react-router-dom";
import type { List, RebalancePlan, WorkerView } from "../api/types";
import { ago, bytes, cores, count, parseBytes, parseCPU } from "../format";
import { A, Empty, Loaded, Page, Panel, useActs } from "../parts/basics";
import { place } from "../parts/facts";
import { later } from "../parts/later";
import { StateBadge } from "../parts/state";
import { memberState, memberWhy, trust } from "../state/member";
import { type Query, useGet } from "../state/query";
import { useSession } from "../state/session";

const HistoryOf = later(() => import("../parts/history"));

/** Workers lists the workers of a site, at its own server. */
export default function Workers() {
  const { who, can } = useSession();
  const [params, setParams] = useSearchParams();
  const q = useGet<List<WorkerView>>(who?.role === "cluster" ? "/v1/workers" : null, 5);
  if (who?.role !== "cluster")
    return (
      <Page title="Workers">
        <Panel>
          <Empty>The root knows clusters in aggregate only; each cluster shows its workers at its own server.</Empty>
        </Panel>
      </Page>
    );
  return (
    <Page
      title="Workers"
      sub={q.data && <span role="status">{count(q.data.items.length, "worker")}</span>}
      actions={can("workers:write") && <Rebalance />}
    >
      <Tabs
        value={params.get("tab") ?? "workers"}
        onChange={(t) => setParams(t && t !== "workers" ? { tab: t } : {}, { replace: true })}
        keepMounted={false}
      >
        <Tabs.List mb="md">
          <Tabs.Tab value="workers">Workers</Tabs.Tab>
          <Tabs.Tab value="history">History</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="workers">
          <WorkerList q={q} />
        </Tabs.Panel>
        <Tabs.Panel value="history">
          <Suspense fallback={<Text>Loading …</Text>}>
            <HistoryOf />
          </Suspense>
        </Tabs.Panel>
      </Tabs>
    </Page>
  );
}

function WorkerList({ q }: { q: Query<List<WorkerView>> }) {
  return (
    <Panel pad={0}>
      <Loaded of={q}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty>
              No worker has joined. <code>skerry token create --role worker --name NAME</code> makes a token with which
              one can.
            </Empty>
          ) : (
            <div className="table-wrap" tabIndex={0} role="region" aria-label="Workers">
              <Table miw={{ base: 300, sm: 1080 }} horizontalSpacing="md" verticalSpacing="sm">
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>Worker</Table.Th>
                    <Table.Th>State</Table.Th>
                    <Table.Th visibleFrom="sm">For</Table.Th>
                    <Table.Th visibleFrom="sm">Arch</Table.Th>
                    <Table.Th ta="right">Instances</Table.Th>
                    <Table.Th ta="right" visibleFrom="sm">
                      CPU requested
                    </Table.Th>
                    <Table.Th ta="right" visibleFrom="sm">
                      Memory requested
                    </Table.Th>
                    <Table.Th visibleFrom="sm">Runtimes</Table.Th>
                    <Table.Th visibleFrom="sm">Place</Table.Th>
                    <Table.Th visibleFrom="sm">Trust</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {items.map((w) => {
                    const runtimes = (w.facts?.runtimes ?? []).filter((r) => !r.absent);
                    const failed = runtimes.filter((r) => !r.passed);
                    return (
                      <Table.Tr key={w.name}>
                        <Table.Td style={{ whiteSpace: "nowrap" }}>
                          <A to={"/workers/" + encodeURIComponent(w.name)}>{w.name}</A>
                        </Table.Td>
                        <Table.Td>
                          <StateBadge state={memberState(w)} />
                          <Text size="xs">{memberWhy(w)}</Text>
                        </Table.Td>
                        <Table.Td visibleFrom="sm" style={{ whiteSpace: "nowrap" }}>
                          {ago(w.since)}
                        </Table.Td>
                        <Table.Td visibleFrom="sm">{w.facts?.arch ?? "–"}</Table.Td>
                        <Table.Td ta="right">{w.instances.toLocaleString()}</Table.Td>
                        <Table.Td ta="right" visibleFrom="sm" style={{ whiteSpace: "nowrap" }}>
                          {cores(parseCPU(w.reserved.cpu))} of {cores(parseCPU(w.facts?.capacity.cpu))}
                        </Table.Td>
                        <Table.Td ta="right" visibleFrom="sm" style={{ whiteSpace: "nowrap" }}>
                          {bytes(parseBytes(w.reserved.memory))} of {bytes(parseBytes(w.facts?.capacity.memory))}
                        </Table.Td>
                        <Table.Td visibleFrom="sm">
                          {runtimes
                            .filter((r) => r.passed)
                            .map((r) => r.name)
                            .join(", ") || "none"}
                          {failed.length > 0 && (
                            <Text size="xs" c="dimmed">
                              {count(failed.length, "more does", "more do")} not work
                            </Text>
                          )}
                        </Table.Td>
                        <Table.Td visibleFrom="sm">
                          {w.facts?.area}
                          <Text size="xs" c="dimmed">
                            {place(w.facts?.location) || (w.facts?.area ? "" : "not known")}
                          </Text>
                        </Table.Td>
                        <Table.Td visibleFrom="sm">
                          <Text size="sm" maw={240}>
                            {trust(w.credit)}
                          </Text>
                        </Table.Td>
                      </Table.Tr>
                    );
                  })}
                </Table.Tbody>
              </Table>
            </div>
          )
        }
      </Loaded>
    </Panel>
  );
}

/** Rebalance shows what would be better off elsewhere, and moves it if the user says so. */
function Rebalance() {
  const { client } = useSession();
  const { act, say } = useActs();
  const [plan, setPlan] = useState<RebalancePlan | null>(null);
  const [busy, setBusy] = useState(false);
  const run = async (dryRun: boolean) => {
    setBusy(true);
    await act(async () => {
      const p = await client.call<RebalancePlan>("POST", "/v1/rebalance", { body: { dryRun } });
      setPlan(dryRun ? p : null);
      const n = p.moves?.length ?? 0; // others than were shown, perhaps
      if (!dryRun)
        say(
          n
            ? `${count(n, "instance")} to move, one at a time, if nothing comes between; the events show which have`
            : "No instance has a clearly better place any more",
        );
    });
    setBusy(false);
  };
  const moves = plan?.moves ?? [];
  return (
    <>
      <Button variant="default" loading={busy && !plan} onClick={() => void run(true)}>
        Rebalance
      </Button>
      <Modal
        opened={plan !== null}
        onClose={() => setPlan(null)}
        title="Move to better places"
        size="lg"
        centered
        closeButtonProps={{ "aria-label": "Close" }}
      >
        <Stack>
          {moves.length === 0 ? (
            <Text>No instance has a clearly better place.</Text>
          ) : (
            <div className="table-wrap" tabIndex={0} role="region" aria-label="Instances to move">
              <Table>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>Instance</Table.Th>
                    <Table.Th>From</Table.Th>
                    <Table.Th>To</Table.Th>
                    <Table.Th>Why</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {moves.map((m) => (
                    <Table.Tr key={m.instance}>
                      <Table.Td>{m.instance}</Table.Td>
                      <Table.Td>{m.from}</Table.Td>
                      <Table.Td>{m.to}</Table.Td>
                      <Table.Td>{m.why}</Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </div>
          )}
          {(plan?.stays ?? []).map((s) => (
            <Text size="sm" key={s.instance}>
              {s.instance} stays: {s.reason}
            </Text>
          ))}
          <Group justify="flex-end">
            <Button variant="default" onClick={() => setPlan(null)}>
              {moves.length ? "Cancel" : "Close"}
            </Button>
            {moves.length > 0 && (
              <Button loading={busy} onClick={() => void run(false)} data-autofocus>
                Move them
              </Button>
            )}
          </Group>
        </Stack>
      </Modal>
    </>
  );
}

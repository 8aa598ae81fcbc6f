import { Alert, Button, Group, SimpleGrid, Stack, Table, Tabs, Text } from "@mantine/core";
import { Link, useParams, useSearchParams } from "react-router-dom";
import type { ClusterView } from "../api/types";
import { ago, bytes, clock, cores, count } from "../format";
import { Empty, Loaded, Page, Panel, useActs } from "../parts/basics";
import { Drain } from "../parts/drain";
import { Credit, Facts, inNetwork, place, Words } from "../parts/facts";
import { MemberActions } from "../parts/memberacts";
import { MemberInstances } from "../parts/members";
import { StateBadge } from "../parts/state";
import { classRoom, free } from "../state/capacity";
import { memberState, memberWhy } from "../state/member";
import { useGet } from "../state/query";
import { useSession } from "../state/session";

/** ClusterPage shows one site as the root knows it. Its workers are known at its own server alone. */
export default function ClusterPage() {
  const { name = "" } = useParams();
  const path = "/v1/clusters/" + encodeURIComponent(name);
  const q = useGet<ClusterView>(path, 5);
  return (
    <Loaded of={q} title={name}>
      {(c) => <Shown c={c} path={path} reload={q.reload} />}
    </Loaded>
  );
}

function Shown({ c, path, reload }: { c: ClusterView; path: string; reload: () => void }) {
  const { client, can } = useSession();
  const { ask } = useActs();
  const [params, setParams] = useSearchParams();
  const admin = can("clusters:admin");
  const r = c.report;
  const f = free(c);
  return (
    <Page
      title={c.name}
      sub={
        <Group gap="xs">
          <StateBadge state={memberState(c)} />
          <span>
            for {ago(c.since)} · {count(c.instances, "instance")}
            {c.version && " · version " + c.version}
          </span>
        </Group>
      }
      actions={
        <>
          {can("apps:read") && (
            <Button component={Link} variant="default" to="/map">
              Show on the map
            </Button>
          )}
          {admin && <MemberActions of="cluster" w={c} path={path} reload={reload} />}
        </>
      }
    >
      {memberWhy(c) && !c.credit?.quarantine && (
        <Alert color="orange" variant="light" title={memberState(c)}>
          {memberWhy(c)}
        </Alert>
      )}
      {c.lost && (
        <Alert
          color="red"
          variant="light"
          title="It has been disconnected for so long that its instances are started elsewhere."
        />
      )}
      {c.drain && <Drain d={c.drain} />}
      <Tabs
        value={params.get("tab") ?? "state"}
        onChange={(t) => setParams(t && t !== "state" ? { tab: t } : {}, { replace: true })}
        keepMounted={false}
      >
        <Tabs.List mb="md">
          <Tabs.Tab value="state">State</Tabs.Tab>
          {can("apps:read") && <Tabs.Tab value="instances">Instances</Tabs.Tab>}
          {can("events:read") && <Tabs.Tab value="events">Events</Tabs.Tab>}
        </Tabs.List>
        <Tabs.Panel value="state">
          <Stack>
            <SimpleGrid cols={{ base: 1, lg: 2 }}>
              <Panel title="Site">
                <Facts
                  rows={[
                    ["Areas", r.areas?.length ? <Words list={r.areas} /> : "none named"],
                    ["Middle", place(r.centroid)],
                    ["Radius", r.centroid && `${Math.round(r.radiusKm ?? 0).toLocaleString()} km`],
                    [
                      "Labels",
                      c.labels && Object.keys(c.labels).length > 0 && (
                        <Words list={Object.entries(c.labels).map(([k, v]) => (v ? `${k}=${v}` : k))} />
                      ),
                    ],
                    ["Workers", f.workers.toLocaleString()],
                    ["Free", `${cores(f.cpu)} CPU, ${bytes(f.memory)} memory`],
                    ["In the network", inNetwork(r.network)],
                    ["Its workers are", r.network && `within ${(r.networkMs ?? 0).toFixed(1)} ms of there`],
                    ["Name servers", r.ingress?.servers?.length ? <Words list={r.ingress.servers} /> : undefined],
                    ["Zone", r.ingress?.zone],
                    [
                      "Lowest priority",
                      r.lowest === undefined ? undefined : `${r.lowest}: what is above it may be given room there`,
                    ],
                    ["Reported", c.reportAt && `${clock(c.reportAt)}, ${ago(c.reportAt)} ago`],
                  ]}
                />
                {!r.centroid && (
                  <Text size="sm" c="dimmed">
                    None of its workers says where it is (<code>--location</code>), so it is not on the map.
                  </Text>
                )}
              </Panel>
              <Credit
                credit={c.credit}
                actions={
                  admin &&
                  c.credit && (
                    <Button
                      size="xs"
                      variant="default"
                      onClick={() =>
                        ask({
                          title: `Trust ${c.name} again?`,
                          text: "Everything counted against it is forgotten, and a quarantine ends.",
                          action: "Trust it",
                          run: async () => {
                            await client.call("PUT", path + "/trust");
                            reload();
                          },
                          done: `${c.name} is trusted again`,
                        })
                      }
                    >
                      Trust again
                    </Button>
                  )
                }
              />
            </SimpleGrid>
            <Panel title="Classes of workers">
              <Classes c={c} />
            </Panel>
          </Stack>
        </Tabs.Panel>
        <Tabs.Panel value="instances">
          <MemberInstances of="cluster" name={c.name} part="instances" />
        </Tabs.Panel>
        <Tabs.Panel value="events">
          <MemberInstances of="cluster" name={c.name} part="events" />
        </Tabs.Panel>
      </Tabs>
    </Page>
  );
}

function Classes({ c }: { c: ClusterView }) {
  const list = c.report.classes ?? [];
  if (list.length === 0) return <Empty>It has reported no workers.</Empty>;
  return (
    <>
      <Text size="sm" c="dimmed" mb="xs">
        The root knows workers by what they are alike in, with the room that they have left together.
      </Text>
      <div className="table-wrap" tabIndex={0} role="region" aria-label="Classes of workers">
        <Table miw={640}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Architecture</Table.Th>
              <Table.Th>Runtimes</Table.Th>
              <Table.Th>Devices</Table.Th>
              <Table.Th ta="right">Workers</Table.Th>
              <Table.Th ta="right">Free CPU</Table.Th>
              <Table.Th ta="right">Free memory</Table.Th>
              <Table.Th ta="right">Memory of one, about</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {list.map((k, n) => {
              const room = classRoom(k);
              return (
                <Table.Tr key={n}>
                  <Table.Td>{k.class.arch}</Table.Td>
                  <Table.Td>{(k.class.runtimes ?? []).join(", ") || "none"}</Table.Td>
                  <Table.Td>{(k.class.devices ?? []).join(", ") || "–"}</Table.Td>
                  <Table.Td ta="right">{k.workers.toLocaleString()}</Table.Td>
                  <Table.Td ta="right">{cores(room.cpu)}</Table.Td>
                  <Table.Td ta="right">{bytes(room.memory)}</Table.Td>
                  <Table.Td ta="right">{bytes(room.each)}</Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </div>
    </>
  );
}

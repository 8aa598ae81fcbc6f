import { Box, Button, Group, Progress, SimpleGrid, Stack, Table, Text } from "@mantine/core";
import { Link } from "react-router-dom";
import { aboutError } from "../api/client";
import type { ClusterView, List, WorkerView } from "../api/types";
import { ago, bytes, cores, count, parseBytes, parseCPU } from "../format";
import { A, Empty, Loaded, Page, Panel } from "../parts/basics";
import { Events } from "../parts/events";
import { StateBadge } from "../parts/state";
import { free } from "../state/capacity";
import { ails, memberState, memberWhy } from "../state/member";
import { type Query, useGet } from "../state/query";
import { useSession } from "../state/session";
import { trouble } from "../state/trouble";
import { appID, useWatch } from "../state/watch";

function Number_({ value, label, to }: { value: string | number; label: string; to?: string }) {
  const inner = (
    <Box>
      <Text fz={30} fw={700} lh={1.1}>
        {typeof value === "number" ? value.toLocaleString() : value}
      </Text>
      <Text size="sm" c="dimmed">
        {label}
      </Text>
    </Box>
  );
  return (
    <Panel>
      {to ? (
        <A to={to} underline="never" c="inherit">
          {inner}
        </A>
      ) : (
        inner
      )}
    </Panel>
  );
}

/** Overview tells what runs, what does not and why, what room there is, and what happens. */
export function Overview() {
  const { client, who, can } = useSession();
  const fleet = useWatch(client, { kinds: ["app", "event"] });
  const apps = [...fleet.apps.values()];
  const services = apps.flatMap((a) => a.services ?? []);
  const wanted = services.reduce((n, s) => n + s.want, 0);
  const isReady = services.reduce((n, s) => n + s.ready, 0);
  const bad = apps.map((a) => ({ app: a, why: trouble(a) })).filter((x) => x.why.length > 0);
  const kind = who?.role === "root" ? "clusters" : "workers";
  const members = useGet<List<ClusterView | WorkerView>>(can(kind + ":read") ? "/v1/" + kind : null, 10);
  const ailing = (members.data?.items ?? []).filter(ails);
  const attention = bad.length + ailing.length;
  // Of members that were never read, as of applications that are still to come, nobody knows whether they need attention.
  const known = fleet.synced && !members.loading && (members.error === undefined || members.data !== undefined);
  return (
    <Page
      title="Overview"
      sub={who?.role === "cluster" ? "The site " + who.site + " and its workers" : "All sites of the federation"}
      actions={
        can("apps:write") && (
          <Button component={Link} to="/build">
            New application
          </Button>
        )
      }
    >
      <SimpleGrid cols={{ base: 2, md: 4 }}>
        <Number_
          value={fleet.synced ? apps.length : "–"}
          label={apps.length === 1 ? "application" : "applications"}
          to="/apps"
        />
        <Number_ value={fleet.synced ? services.length : "–"} label={services.length === 1 ? "service" : "services"} />
        <Number_
          value={fleet.synced ? `${isReady.toLocaleString()} / ${wanted.toLocaleString()}` : "–"}
          label="instances ready / wanted"
          to="/instances"
        />
        <Number_
          value={known ? attention : attention > 0 ? `${attention.toLocaleString()} or more` : "–"}
          label={known && attention === 1 ? "needs attention" : "need attention"}
        />
      </SimpleGrid>
      <Panel title="Needs attention">
        {members.error !== undefined && (
          <Text mb={attention ? "sm" : undefined}>
            It is not known how the {kind} are now: {aboutError(members.error).text}
          </Text>
        )}
        {attention === 0 && members.error !== undefined ? null : attention === 0 ? (
          <Text c="dimmed">
            {!fleet.synced || members.loading
              ? "Loading …"
              : apps.length === 0
                ? "Nothing is deployed yet."
                : "Everything runs as it should."}
          </Text>
        ) : (
          <Stack gap="sm">
            {bad.map(({ app, why }) => (
              <Box key={appID(app.key)}>
                <Group gap="xs">
                  <A to={`/apps/${app.key.namespace}/${app.key.name}`} fw={600}>
                    {app.key.name}
                  </A>
                  <StateBadge state={app.status} />
                </Group>
                {why.map((w, i) => (
                  <Text key={i} size="sm">
                    {w}
                  </Text>
                ))}
              </Box>
            ))}
            {ailing.map((m) => (
              <Box key={m.name}>
                <Group gap="xs">
                  <A to={`/${kind}/${encodeURIComponent(m.name)}`} fw={600}>
                    {m.name}
                  </A>
                  <StateBadge state={memberState(m)} />
                </Group>
                <Text size="sm">{memberWhy(m) || `for ${ago(m.since)}`}</Text>
              </Box>
            ))}
          </Stack>
        )}
      </Panel>
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        {who?.role === "root" && can("clusters:read") && <ClusterCapacity q={members as Query<List<ClusterView>>} />}
        {who?.role === "cluster" && can("workers:read") && <WorkerCapacity q={members as Query<List<WorkerView>>} />}
        <Panel title="Events">
          <Box mah={420} style={{ overflowY: "auto" }} tabIndex={0} role="region" aria-label="Events">
            <Events of={fleet} />
          </Box>
        </Panel>
      </SimpleGrid>
    </Page>
  );
}

function ClusterCapacity({ q }: { q: Query<List<ClusterView>> }) {
  return (
    <Panel title="Clusters">
      <Loaded of={q}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty>
              No cluster has joined. <code>skerry token create --role cluster --name NAME</code> makes a token with
              which one can.
            </Empty>
          ) : (
            <div className="table-wrap" tabIndex={0} role="region" aria-label="Clusters">
              <Table>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>Cluster</Table.Th>
                    <Table.Th>State</Table.Th>
                    <Table.Th ta="right">Instances</Table.Th>
                    <Table.Th ta="right">Free CPU</Table.Th>
                    <Table.Th ta="right">Free memory</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {items.map((c) => {
                    const f = free(c);
                    return (
                      <Table.Tr key={c.name}>
                        <Table.Td>
                          <A to={"/clusters/" + c.name}>{c.name}</A>
                        </Table.Td>
                        <Table.Td>
                          <StateBadge state={memberState(c)} />
                        </Table.Td>
                        <Table.Td ta="right">{c.instances.toLocaleString()}</Table.Td>
                        <Table.Td ta="right">{cores(f.cpu)}</Table.Td>
                        <Table.Td ta="right">{bytes(f.memory)}</Table.Td>
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

function WorkerCapacity({ q }: { q: Query<List<WorkerView>> }) {
  return (
    <Panel title="Workers">
      <Loaded of={q}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty>
              No worker has joined. <code>skerry token create --role worker --name NAME</code> makes a token with which
              one can.
            </Empty>
          ) : (
            <Stack gap="sm">
              {items.map((w) => {
                const cpu = parseCPU(w.facts?.capacity.cpu);
                const memory = parseBytes(w.facts?.capacity.memory);
                const usedCPU = parseCPU(w.reserved.cpu);
                const usedMemory = parseBytes(w.reserved.memory);
                return (
                  <Box key={w.name}>
                    <Group justify="space-between">
                      <A to={"/workers/" + w.name}>{w.name}</A>
                      <Group gap="xs">
                        <Text size="sm" c="dimmed">
                          {count(w.instances, "instance")}
                        </Text>
                        <StateBadge state={memberState(w)} />
                      </Group>
                    </Group>
                    <Use label={`CPU: ${cores(usedCPU)} of ${cores(cpu)} asked for`} part={cpu ? usedCPU / cpu : 0} />
                    <Use
                      label={`Memory: ${bytes(usedMemory)} of ${bytes(memory)} asked for`}
                      part={memory ? usedMemory / memory : 0}
                    />
                  </Box>
                );
              })}
            </Stack>
          )
        }
      </Loaded>
    </Panel>
  );
}

/** Use shows how much of something is in use, in words and as a bar. */
export function Use({ label, part }: { label: string; part: number }) {
  return (
    <Box>
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      <Progress
        value={Math.min(100, part * 100)}
        aria-label={label}
        size="sm"
        color={part > 0.9 ? "orange" : undefined}
      />
    </Box>
  );
}

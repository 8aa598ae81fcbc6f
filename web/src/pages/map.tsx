import { Group, Select, Stack, Table, Text } from "@mantine/core";
import { useMemo } from "react";
import { useSearchParams } from "react-router-dom";
import type { AppView, ClusterView, List, WorkerView } from "../api/types";
import { count } from "../format";
import { kmPerMs } from "../map/geometry";
import {
  clusterMarks,
  type Held,
  holders,
  type Limits,
  limits,
  type Mark,
  type Near,
  visible,
  workerMarks,
} from "../map/places";
import { World } from "../map/world";
import { A, Empty, Page, Panel, Problem, Stale } from "../parts/basics";
import { place } from "../parts/facts";
import { StateBadge } from "../parts/state";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { appID, useWatch } from "../state/watch";

/** WorldPage shows where clusters, or a site's workers, are, what they hold of an application, and how far that may be from its users. */
export default function WorldPage() {
  const { client, who, can } = useSession();
  const [params, setParams] = useSearchParams();
  const sees = visible(who?.role, can);
  const clusters = useGet<List<ClusterView>>(sees.clusters ? "/v1/clusters" : null, 5);
  const workers = useGet<List<WorkerView>>(sees.workers ? "/v1/workers" : null, 5);
  const q = sees.clusters ? clusters : workers;
  const noun = who?.role === "cluster" ? "worker" : "cluster";
  const marks = useMemo(
    () => (sees.clusters ? clusterMarks(clusters.data?.items ?? []) : workerMarks(workers.data?.items ?? [])),
    [sees.clusters, clusters.data, workers.data],
  );

  const apps = useWatch(client, { kinds: ["app", "event"] }).apps;
  const chosen = params.get("app") ?? "";
  const app = apps.get(chosen);
  return (
    <Page
      title="Map"
      sub={who?.role === "cluster" ? "The workers of the site " + who.site : "The clusters of the federation"}
      actions={
        sees.apps && (
          <Select
            label="Application"
            placeholder="None"
            searchable
            clearable
            clearButtonProps={{ "aria-label": "No application" }}
            nothingFoundMessage="There is none with that name."
            data={[...apps.values()].map((a) => ({
              value: appID(a.key),
              label: a.key.namespace === "default" ? a.key.name : appID(a.key),
            }))}
            value={app ? chosen : null}
            onChange={(v) => setParams(v ? { app: v } : {}, { replace: true })}
            w={{ base: "100%", xs: 260 }}
          />
        )
      }
    >
      {q.error !== undefined && !q.data && <Problem error={q.error} onRetry={q.reload} />}
      <Stale of={q} />
      {!sees.clusters && !sees.workers && (
        <Text size="sm" c="dimmed">
          Where the {noun}s are is shown to operators. Choose an application to see what it asks for of its users’
          places.
        </Text>
      )}
      {app ? (
        <WithApp key={chosen} app={app} marks={marks} noun={noun} />
      ) : (
        <Shown marks={marks} near={[]} held={null} noun={noun} />
      )}
    </Page>
  );
}

/** WithApp reads of an application what the map shows of it. */
function WithApp({ app, marks, noun }: { app: AppView; marks: Mark[]; noun: "cluster" | "worker" }) {
  const { client } = useSession();
  const { namespace, name } = app.key;
  const { instances } = useWatch(client, { kinds: ["app", "instance", "event"], namespace, app: name });
  const q = useGet<AppView>(`/v1/apps/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  const near = useMemo(() => limits(q.data?.manifest as Limits | undefined), [q.data]);
  const held = useMemo(() => holders(instances.values(), noun), [instances, noun]);
  return (
    <>
      {q.error !== undefined && <Problem error={q.error} onRetry={q.reload} />}
      <Shown marks={marks} near={near} held={held} noun={noun} />
      {q.data && !q.data.manifest && (
        <Text size="sm" c="dimmed">
          The application is the root’s: what it asks for of its users’ places is shown there.
        </Text>
      )}
    </>
  );
}

function Shown({
  marks,
  near,
  held,
  noun,
}: {
  marks: Mark[];
  near: Near[];
  held: Map<string, Held> | null;
  noun: "cluster" | "worker";
}) {
  const nowhere = marks.filter((m) => !m.location);
  return (
    <Stack>
      <Panel>
        <World marks={marks} circles={near} held={held} noun={noun} />
        {near.length > 0 && (
          <Group gap="lg" mt="xs">
            <Key kind="distance">at most so far away</Key>
            <Key kind="latency">at most so long a round trip</Key>
          </Group>
        )}
        {near.some((n) => n.kind === "latency") && (
          <Text size="sm" mt="xs">
            The circle of a round trip is how far light in fibre comes in half of it: about {kmPerMs} km for each
            millisecond. Cables go longer ways and machines take time, so what is outside of it is too far away, and
            what is inside may still be.
          </Text>
        )}
        {nowhere.length > 0 && (
          <Text size="sm" mt="xs">
            Not on the map, because {nowhere.length === 1 ? "it does" : "they do"} not say where{" "}
            {nowhere.length === 1 ? "it is" : "they are"}:{" "}
            {nowhere.slice(0, 20).map((m, n) => (
              <span key={m.name}>
                {n > 0 && ", "}
                <A to={m.to}>{m.name}</A> ({m.state},{" "}
                {count(held ? (held.get(m.name)?.there ?? 0) : m.instances, "instance")})
              </span>
            ))}
            {nowhere.length > 20 && ` and ${nowhere.length - 20} more`}.
          </Text>
        )}
      </Panel>
      <Panel title={noun === "cluster" ? "Clusters" : "Workers"}>
        <Places marks={marks} held={held} noun={noun} />
      </Panel>
      {near.length > 0 && (
        <Panel title="Near to users and places">
          <Limited near={near} />
        </Panel>
      )}
    </Stack>
  );
}

function Key({ kind, children }: { kind: Near["kind"]; children: string }) {
  return (
    <Group gap={6} className="map-key">
      <svg width={36} height={16} aria-hidden>
        <path d="M2 8H34" className={"map-limit map-" + kind} />
      </svg>
      <Text size="sm">{children}</Text>
    </Group>
  );
}

/** Places tells what the map shows of clusters or workers. Who may not see them is told of those alone that hold the application. */
function Places({ marks, held, noun }: { marks: Mark[]; held: Map<string, Held> | null; noun: string }) {
  const known = new Set(marks.map((m) => m.name));
  const others = held ? [...held].filter(([name]) => !known.has(name)).sort(([a], [b]) => a.localeCompare(b)) : [];
  if (marks.length === 0 && others.length === 0)
    return <Empty>{held ? "It has no instances." : `There is no ${noun} to show.`}</Empty>;
  const counted = (h: Held | undefined) =>
    h ? (
      <>
        {h.ready} of {h.there} ready
        <Text size="xs" c="dimmed">
          {[...h.services].map(([s, n]) => `${s} × ${n}`).join(", ")}
        </Text>
      </>
    ) : (
      "none"
    );
  return (
    <div className="table-wrap" tabIndex={0} role="region" aria-label={noun === "cluster" ? "Clusters" : "Workers"}>
      <Table miw={held ? 720 : 600}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{noun === "cluster" ? "Cluster" : "Worker"}</Table.Th>
            <Table.Th>State</Table.Th>
            <Table.Th>{noun === "cluster" ? "Middle" : "Location"}</Table.Th>
            {noun === "cluster" && <Table.Th ta="right">Radius</Table.Th>}
            <Table.Th>{noun === "cluster" ? "Areas" : "Area"}</Table.Th>
            <Table.Th ta="right">Instances</Table.Th>
            {held && <Table.Th>Of the application</Table.Th>}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {marks.map((m) => (
            <Table.Tr key={m.name}>
              <Table.Td>
                <A to={m.to}>{m.name}</A>
              </Table.Td>
              <Table.Td>
                <StateBadge state={m.state} />
              </Table.Td>
              <Table.Td>{place(m.location) || "not known"}</Table.Td>
              {noun === "cluster" && (
                <Table.Td ta="right">{m.location ? `${Math.round(m.radiusKm).toLocaleString()} km` : "–"}</Table.Td>
              )}
              <Table.Td>{m.areas.join(", ") || "–"}</Table.Td>
              <Table.Td ta="right">{m.instances.toLocaleString()}</Table.Td>
              {held && <Table.Td>{counted(held.get(m.name))}</Table.Td>}
            </Table.Tr>
          ))}
          {others.map(([name, h]) => (
            <Table.Tr key={name}>
              <Table.Td>{name || "no place yet"}</Table.Td>
              <Table.Td>–</Table.Td>
              <Table.Td>–</Table.Td>
              {noun === "cluster" && <Table.Td ta="right">–</Table.Td>}
              <Table.Td>–</Table.Td>
              <Table.Td ta="right">–</Table.Td>
              <Table.Td>{counted(h)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function Limited({ near }: { near: Near[] }) {
  return (
    <div className="table-wrap" tabIndex={0} role="region" aria-label="Near to users and places">
      <Table miw={600}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Service</Table.Th>
            <Table.Th>Near to</Table.Th>
            <Table.Th>Where that is</Table.Th>
            <Table.Th>At most</Table.Th>
            <Table.Th ta="right">Circle</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {near.map((n, i) => (
            <Table.Tr key={i}>
              <Table.Td>{n.service}</Table.Td>
              <Table.Td>{n.whom}</Table.Td>
              <Table.Td>{place(n.location) || "not known: it has an address alone"}</Table.Td>
              <Table.Td>{n.kind === "latency" ? `a round trip of ${n.limit}` : n.limit}</Table.Td>
              <Table.Td ta="right">{n.location ? `${Math.round(n.km).toLocaleString()} km` : "none"}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

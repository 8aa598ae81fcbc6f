import { Button, Group, Progress, Stack, Table, Text } from "@mantine/core";
import { Link, useNavigate, useParams } from "react-router-dom";
import type { List, Upgrade, UpgradeCluster } from "../api/types";
import { ago, clock, count } from "../format";
import { A, Empty, Loaded, Page, Panel, useActs } from "../parts/basics";
import { StateBadge } from "../parts/state";
import { useGet } from "../state/query";
import { useSession } from "../state/session";

/** offeredFor tells what may be done with an upgrade as it stands. */
export function offeredFor(u: Pick<Upgrade, "state">): ("pause" | "resume" | "abort" | "forget")[] {
  switch (u.state) {
    case "Running":
      return ["pause", "abort"];
    case "Paused":
    case "Stopped":
      return ["resume", "abort"];
    default:
      return ["forget"];
  }
}

/** sites are the clusters of an upgrade, by waves. */
const sites = (u: Upgrade) => u.sites ?? [];

/** far tells in words how far an upgrade is. */
export function far(u: Upgrade): string {
  const mine = sites(u).filter((s) => s.stage !== "Skipped");
  const of = (stage: UpgradeCluster["stage"]) => mine.filter((s) => s.stage === stage).length;
  const waves = Math.max(0, ...mine.map((s) => s.wave));
  const busy = mine.filter((s) => s.stage === "Upgrading" || s.stage === "Watched");
  const out = [`${of("Done")} of ${count(mine.length, "cluster")} done`];
  if (busy.length) out.push(`wave ${Math.max(...busy.map((s) => s.wave))} of ${waves}`);
  if (of("Failed")) out.push(`${of("Failed")} failed`);
  const skipped = sites(u).length - mine.length;
  if (skipped) out.push(`${skipped} skipped`);
  return out.join(", ");
}

function Far({ u }: { u: Upgrade }) {
  const mine = sites(u).filter((s) => s.stage !== "Skipped");
  const text = far(u);
  return (
    <>
      <Text size="sm">{text}</Text>
      <Progress
        value={mine.length ? (100 * mine.filter((s) => s.stage === "Done").length) / mine.length : 0}
        aria-label={`${u.name}: ${text}`}
        color={mine.some((s) => s.stage === "Failed") ? "orange" : undefined}
        mt={4}
      />
    </>
  );
}

/** Upgrades lists the upgrades of clusters in waves. */
export default function Upgrades() {
  const q = useGet<List<Upgrade>>("/v1/upgrades", 5);
  return (
    <Page title="Upgrades" sub="The workers of many sites go over to another program, a wave of sites at a time.">
      <Panel pad={0}>
        <Loaded of={q}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty>
                There are none. <code>skerry upgrade clusters --all --image IMAGE</code> begins one; each site must
                grant <code>waves</code>.
              </Empty>
            ) : (
              <div className="table-wrap" tabIndex={0} role="region" aria-label="Upgrades">
                <Table verticalSpacing="sm" horizontalSpacing="md">
                  <Table.Thead>
                    <Table.Tr>
                      <Table.Th>Upgrade</Table.Th>
                      <Table.Th>State</Table.Th>
                      <Table.Th>How far</Table.Th>
                      <Table.Th visibleFrom="sm">Image</Table.Th>
                      <Table.Th visibleFrom="sm">By</Table.Th>
                      <Table.Th ta="right" visibleFrom="sm">
                        Begun
                      </Table.Th>
                    </Table.Tr>
                  </Table.Thead>
                  <Table.Tbody>
                    {items.map((u) => (
                      <Table.Tr key={u.name}>
                        <Table.Td>
                          <A to={"/upgrades/" + encodeURIComponent(u.name)} fw={600}>
                            {u.name}
                          </A>
                        </Table.Td>
                        <Table.Td>
                          <StateBadge state={u.state} />
                          {u.why && <Text size="xs">{u.why}</Text>}
                        </Table.Td>
                        <Table.Td miw={180}>
                          <Far u={u} />
                        </Table.Td>
                        <Table.Td visibleFrom="sm" className="mono" style={{ overflowWrap: "anywhere" }}>
                          {u.image}
                        </Table.Td>
                        <Table.Td visibleFrom="sm">{u.by || "–"}</Table.Td>
                        <Table.Td visibleFrom="sm" ta="right" style={{ whiteSpace: "nowrap" }}>
                          {ago(u.since)} ago
                        </Table.Td>
                      </Table.Tr>
                    ))}
                  </Table.Tbody>
                </Table>
              </div>
            )
          }
        </Loaded>
      </Panel>
    </Page>
  );
}

/** UpgradePage shows one upgrade, cluster by cluster, and what can be done with it. */
export function UpgradePage() {
  const { name = "" } = useParams();
  const path = "/v1/upgrades/" + encodeURIComponent(name);
  const q = useGet<Upgrade>(path, 3);
  const { can } = useSession();
  return (
    <Loaded of={q} title={name}>
      {(u) => (
        <Page
          title={u.name}
          sub={
            <Group gap="xs">
              <StateBadge state={u.state} />
              <span>
                for {ago(u.at)} · begun {clock(u.since)}
                {u.by && " by " + u.by}
              </span>
            </Group>
          }
          actions={can("clusters:admin") && <Actions u={u} path={path} reload={q.reload} />}
        >
          <Panel title="How far">
            <Stack gap="xs">
              {u.why && <Text>{u.why}</Text>}
              <Far u={u} />
              <Text size="sm" style={{ overflowWrap: "anywhere" }}>
                Image <span className="mono">{u.image}</span>
                {u.digest && u.digest !== u.image && (
                  <>
                    , <span className="mono">{u.digest}</span>
                  </>
                )}
                . {count(u.wave || 1, "cluster")} at a time; it stops when more than {u.maxFailures ?? 0} fail. A
                cluster has to work with it for {u.steady || "1m"}.
              </Text>
            </Stack>
          </Panel>
          <Panel title="Clusters" pad={0}>
            <Sites list={sites(u)} />
          </Panel>
        </Page>
      )}
    </Loaded>
  );
}

function Actions({ u, path, reload }: { u: Upgrade; path: string; reload: () => void }) {
  const { client } = useSession();
  const { ask } = useActs();
  const go = useNavigate();
  const change = (action: "pause" | "resume" | "abort", label: string, text: string, done: string) => () =>
    ask({
      title: `${label} ${u.name}?`,
      text,
      action: label,
      danger: action === "abort",
      run: async () => {
        await client.call("POST", path + "/state", { body: { action } });
        reload();
      },
      done,
    });
  const may = offeredFor(u);
  return (
    <>
      {may.includes("resume") && (
        <Button
          onClick={change(
            "resume",
            "Resume",
            "The upgrade goes on, and what failed is tried again.",
            `${u.name} goes on`,
          )}
        >
          Resume
        </Button>
      )}
      {may.includes("pause") && (
        <Button
          variant="default"
          onClick={change(
            "pause",
            "Pause",
            "No further cluster begins. Those that have begun finish.",
            `${u.name} is paused`,
          )}
        >
          Pause
        </Button>
      )}
      {may.includes("abort") && (
        <Button
          color="red"
          variant="outline"
          onClick={change(
            "abort",
            "Abort",
            "No further cluster begins, and the upgrade cannot be resumed. What is upgraded stays so.",
            `${u.name} is aborted`,
          )}
        >
          Abort
        </Button>
      )}
      {may.includes("forget") && (
        <Button
          color="red"
          variant="outline"
          onClick={() =>
            ask({
              title: `Forget ${u.name}?`,
              text: "It leaves the list. The clusters keep the program that they have.",
              action: "Forget",
              danger: true,
              run: async () => {
                await client.call("DELETE", path);
                go("/upgrades");
              },
              done: `${u.name} is forgotten`,
            })
          }
        >
          Forget
        </Button>
      )}
      <Button component={Link} variant="default" to="/upgrades">
        All upgrades
      </Button>
    </>
  );
}

function Sites({ list }: { list: UpgradeCluster[] }) {
  if (list.length === 0) return <Empty>It has no clusters.</Empty>;
  return (
    <div className="table-wrap" tabIndex={0} role="region" aria-label="Clusters of the upgrade">
      <Table verticalSpacing="sm" horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th ta="right">Wave</Table.Th>
            <Table.Th>Cluster</Table.Th>
            <Table.Th>State</Table.Th>
            <Table.Th>Why</Table.Th>
            <Table.Th ta="right">Workers</Table.Th>
            <Table.Th visibleFrom="sm">Versions</Table.Th>
            <Table.Th ta="right" visibleFrom="sm">
              For
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {list.map((s) => (
            <Table.Tr key={s.cluster}>
              <Table.Td ta="right">{s.wave || "–"}</Table.Td>
              <Table.Td>
                <A to={"/clusters/" + encodeURIComponent(s.cluster)}>{s.cluster}</A>
              </Table.Td>
              <Table.Td>
                <StateBadge state={s.stage} />
              </Table.Td>
              <Table.Td>{s.why || "–"}</Table.Td>
              <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
                {s.workers ? `${s.upgraded ?? 0} of ${s.workers}` : "–"}
              </Table.Td>
              <Table.Td visibleFrom="sm">
                {Object.entries(s.versions ?? {})
                  .map(([v, n]) => `${v || "unknown"}: ${n}`)
                  .join(", ") || "–"}
              </Table.Td>
              <Table.Td visibleFrom="sm" ta="right" style={{ whiteSpace: "nowrap" }}>
                {ago(s.since)}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

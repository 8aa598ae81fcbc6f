import { Button, Table, Text } from "@mantine/core";
import type { List, VolumeView } from "../api/types";
import { ago, bytes, count, parseBytes } from "../format";
import { A, Empty, Loaded, Page, Panel, useActs } from "../parts/basics";
import { StateBadge } from "../parts/state";
import { useGet } from "../state/query";
import { useSession } from "../state/session";

/** Volumes lists the local volumes of replicas, those that are kept though their service is gone among them. */
export default function Volumes() {
  const { client, can } = useSession();
  const { ask } = useActs();
  const q = useGet<List<VolumeView>>("/v1/volumes", 10);
  const remove = (v: VolumeView) =>
    ask({
      title: `Delete ${v.name}?`,
      text: "What is in it is lost.",
      action: "Delete",
      danger: true,
      run: async () => {
        const at = [v.namespace, v.app, v.service, String(v.replica)].map(encodeURIComponent).join("/");
        const one = v.volume ? "?volume=" + encodeURIComponent(v.volume) : "";
        await client.call("DELETE", "/v1/volumes/" + at + one);
        q.reload();
      },
      done: `${v.name} is being deleted`,
    });
  return (
    <Page title="Volumes" sub={q.data && <span role="status">{count(q.data.items.length, "volume")}</span>}>
      <Panel pad={0}>
        <Loaded of={q}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty>No replica has a local volume. Volumes outlive their application; they are listed here.</Empty>
            ) : (
              <div className="table-wrap" tabIndex={0} role="region" aria-label="Volumes">
                <Table miw={980} horizontalSpacing="md" verticalSpacing="sm">
                  <Table.Thead>
                    <Table.Tr>
                      <Table.Th>Replica</Table.Th>
                      <Table.Th>Namespace</Table.Th>
                      <Table.Th>State</Table.Th>
                      <Table.Th>Volumes</Table.Th>
                      <Table.Th ta="right">Limit</Table.Th>
                      <Table.Th>Place</Table.Th>
                      <Table.Th>Instance</Table.Th>
                      <Table.Th ta="right">Unused for</Table.Th>
                      <Table.Th />
                    </Table.Tr>
                  </Table.Thead>
                  <Table.Tbody>
                    {items.map((v) => (
                      <Table.Tr key={v.namespace + "/" + v.name}>
                        <Table.Td>{v.name}</Table.Td>
                        <Table.Td>{v.namespace}</Table.Td>
                        <Table.Td>
                          <StateBadge state={v.state} title={meaning[v.state]} />
                          {v.scheduled && <Snapshots of={v.scheduled} />}
                        </Table.Td>
                        <Table.Td>{v.volumes?.join(", ") || "–"}</Table.Td>
                        <Table.Td ta="right">{v.size ? bytes(parseBytes(v.size)) : "–"}</Table.Td>
                        <Table.Td>{[v.cluster, v.worker].filter(Boolean).join(" / ") || "–"}</Table.Td>
                        <Table.Td>
                          {v.instance ? <A to={"/instances/" + encodeURIComponent(v.instance)}>{v.instance}</A> : "–"}
                        </Table.Td>
                        <Table.Td ta="right">{v.state === "Used" ? "–" : ago(v.since)}</Table.Td>
                        <Table.Td ta="right">
                          {can("apps:write") && v.state !== "Used" && (
                            <Button
                              size="xs"
                              variant="default"
                              aria-label={"Delete " + v.name}
                              onClick={() => remove(v)}
                            >
                              Delete
                            </Button>
                          )}
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
      <Text size="sm" c="dimmed">
        A volume is kept when its application goes, unless its manifest says <code>reclaim: delete</code>; an
        application of the same name uses it again.
      </Text>
    </Page>
  );
}

/** Snapshots says how old the last snapshot of a schedule is, and why there is no newer one. */
function Snapshots({ of: s }: { of: NonNullable<VolumeView["scheduled"]> }) {
  return (
    <Text size="xs" c={s.reason || s.export?.reason ? "red" : "dimmed"}>
      {s.outOfTouch && "the site is out of touch; "}
      {s.last ? `last snapshot ${ago(s.last)} ago` : s.outOfTouch ? "its snapshots are not known" : "no snapshot yet"}
      {s.reason && `; failed ${ago(s.failed)} ago: ${s.reason}`}
      {s.export?.last && `; exported ${ago(s.export.last)} ago`}
      {s.export?.reason && `; export failed ${ago(s.export.failed)} ago: ${s.export.reason}`}
    </Text>
  );
}

const meaning: Record<VolumeView["state"], string> = {
  Used: "An instance uses it.",
  Idle: "No instance has it now; its service would use it again.",
  Kept: "Its service is gone; one of the same name uses it again.",
  Orphan: "A site that had lost its store found it on the worker; a service of the same name uses it again.",
};

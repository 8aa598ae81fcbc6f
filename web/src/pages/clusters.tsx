import { Table, Text } from "@mantine/core";
import type { ClusterView, List } from "../api/types";
import { ago, bytes, cores, count } from "../format";
import { A, Empty, Loaded, Page, Panel } from "../parts/basics";
import { StateBadge } from "../parts/state";
import { free } from "../state/capacity";
import { memberState, memberWhy, trust } from "../state/member";
import { useGet } from "../state/query";

/** Clusters lists the sites of the federation as the root knows them: in aggregate. */
export default function Clusters() {
  const q = useGet<List<ClusterView>>("/v1/clusters", 5);
  return (
    <Page title="Clusters" sub={q.data && <span role="status">{count(q.data.items.length, "cluster")}</span>}>
      <Panel pad={0}>
        <Loaded of={q}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty>
                No cluster has joined. <code>skerry token create --role cluster --name NAME</code> makes a token with
                which one can.
              </Empty>
            ) : (
              <div className="table-wrap" tabIndex={0} role="region" aria-label="Clusters">
                <Table miw={{ base: 300, sm: 900 }} horizontalSpacing="md" verticalSpacing="sm">
                  <Table.Thead>
                    <Table.Tr>
                      <Table.Th>Cluster</Table.Th>
                      <Table.Th>State</Table.Th>
                      <Table.Th visibleFrom="sm">For</Table.Th>
                      <Table.Th visibleFrom="sm">Version</Table.Th>
                      <Table.Th ta="right">Workers</Table.Th>
                      <Table.Th ta="right">Instances</Table.Th>
                      <Table.Th ta="right" visibleFrom="sm">
                        Free CPU
                      </Table.Th>
                      <Table.Th ta="right" visibleFrom="sm">
                        Free memory
                      </Table.Th>
                      <Table.Th visibleFrom="sm">Areas</Table.Th>
                      <Table.Th visibleFrom="sm">Trust</Table.Th>
                    </Table.Tr>
                  </Table.Thead>
                  <Table.Tbody>
                    {items.map((c) => {
                      const f = free(c);
                      return (
                        <Table.Tr key={c.name}>
                          <Table.Td>
                            <A to={"/clusters/" + encodeURIComponent(c.name)}>{c.name}</A>
                          </Table.Td>
                          <Table.Td>
                            <StateBadge state={memberState(c)} />
                            <Text size="xs">{memberWhy(c)}</Text>
                          </Table.Td>
                          <Table.Td visibleFrom="sm" style={{ whiteSpace: "nowrap" }}>
                            {ago(c.since)}
                          </Table.Td>
                          <Table.Td visibleFrom="sm">{c.version || "–"}</Table.Td>
                          <Table.Td ta="right">{f.workers.toLocaleString()}</Table.Td>
                          <Table.Td ta="right">{c.instances.toLocaleString()}</Table.Td>
                          <Table.Td visibleFrom="sm" ta="right">
                            {cores(f.cpu)}
                          </Table.Td>
                          <Table.Td visibleFrom="sm" ta="right">
                            {bytes(f.memory)}
                          </Table.Td>
                          <Table.Td visibleFrom="sm">{(c.report.areas ?? []).join(", ") || "–"}</Table.Td>
                          <Table.Td visibleFrom="sm">
                            <Text size="sm" maw={260}>
                              {trust(c.credit)}
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
    </Page>
  );
}

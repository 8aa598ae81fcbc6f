import { Table, Text } from "@mantine/core";
import type { AppView, ServiceView } from "../api/types";
import { count } from "../format";
import { A, Empty, Page, Panel } from "../parts/basics";
import { IngressLine } from "../parts/ingress";
import { useSession } from "../state/session";
import { appID, useWatch } from "../state/watch";

type Way = NonNullable<ServiceView["ingress"]>[number];

/** ways lists how clients outside reach services, by host, port and path. */
export function ways(apps: AppView[]): { app: AppView; service: ServiceView; way: Way }[] {
  const name = (w: Way) => `${w.host ?? ""} ${String(w.listen).padStart(5, "0")} ${w.path ?? ""}`;
  return apps
    .flatMap((app) => (app.services ?? []).flatMap((s) => (s.ingress ?? []).map((way) => ({ app, service: s, way }))))
    .sort((a, b) => name(a.way).localeCompare(name(b.way)) || appID(a.app.key).localeCompare(appID(b.app.key)));
}

/** Ingresses lists how clients outside reach what runs. */
export default function Ingresses() {
  const { client, who } = useSession();
  const fleet = useWatch(client, { kinds: ["app", "event"] });
  const list = ways([...fleet.apps.values()]);
  return (
    <Page
      title="Ingresses"
      sub={fleet.synced && <span role="status">{count(list.length, "ingress", "ingresses")}</span>}
    >
      <Panel pad={0}>
        {list.length === 0 ? (
          <Empty>
            {fleet.synced ? (
              <>
                No service has one. A service's field <code>ingress</code> lets clients outside reach it.
              </>
            ) : (
              "Loading …"
            )}
          </Empty>
        ) : (
          <div className="table-wrap" tabIndex={0} role="region" aria-label="Ingresses">
            <Table verticalSpacing="sm" horizontalSpacing="md">
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Ingress</Table.Th>
                  <Table.Th>Service</Table.Th>
                  <Table.Th ta="right">Ready</Table.Th>
                  <Table.Th>{who?.role === "root" ? "At the clusters" : "At the workers"}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {list.map(({ app, service, way }, n) => (
                  <Table.Tr key={n}>
                    <Table.Td style={{ overflowWrap: "anywhere" }}>
                      <IngressLine of={way} />
                    </Table.Td>
                    <Table.Td>
                      <A to={`/apps/${app.key.namespace}/${app.key.name}`}>
                        {app.key.name}/{service.name}
                      </A>
                    </Table.Td>
                    <Table.Td ta="right">
                      {service.ready} / {service.want}
                    </Table.Td>
                    <Table.Td>
                      <Text size="sm">{(way.at ?? []).join(", ") || "nowhere"}</Text>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
        )}
      </Panel>
    </Page>
  );
}

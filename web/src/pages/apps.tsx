import { Button, Group, Select, Table, Text, TextInput } from "@mantine/core";
import { useMemo, useState } from "react";
import { Link, useSearchParams } from "react-router-dom";
import { ago } from "../format";
import { IconSearch } from "../icons";
import { A, Empty, Page, Panel } from "../parts/basics";
import { StateBadge } from "../parts/state";
import { useSession } from "../state/session";
import { trouble } from "../state/trouble";
import { appID, useWatch } from "../state/watch";

/** Apps lists the applications that the user may see. */
export default function Apps() {
  const { client, can } = useSession();
  const fleet = useWatch(client, { kinds: ["app", "event"] });
  const [params, setParams] = useSearchParams();
  const [text, setText] = useState(params.get("q") ?? "");
  const namespace = params.get("namespace");
  const all = useMemo(
    () => [...fleet.apps.values()].sort((a, b) => appID(a.key).localeCompare(appID(b.key))),
    [fleet.apps],
  );
  const namespaces = [...new Set(all.map((a) => a.key.namespace))];
  const shown = all.filter((a) => (!namespace || a.key.namespace === namespace) && appID(a.key).includes(text.trim()));
  const create = can("apps:write") && (
    <Button component={Link} to="/build">
      New application
    </Button>
  );
  return (
    <Page title="Applications" actions={create}>
      <Group>
        <TextInput
          label="Search"
          value={text}
          onChange={(e) => setText(e.currentTarget.value)}
          leftSection={<IconSearch size={16} aria-hidden />}
          w={{ base: "100%", xs: 260 }}
        />
        {namespaces.length > 1 && (
          <Select
            label="Namespace"
            data={namespaces}
            value={namespace}
            clearable
            clearButtonProps={{ "aria-label": "All namespaces" }}
            placeholder="All"
            onChange={(v) => setParams(v ? { namespace: v } : {}, { replace: true })}
          />
        )}
      </Group>
      <Panel pad={0}>
        {shown.length === 0 ? (
          <Empty>
            {!fleet.synced
              ? "Loading …"
              : all.length === 0
                ? "There are no applications yet."
                : "No application matches."}
          </Empty>
        ) : (
          <div className="table-wrap" tabIndex={0} role="region" aria-label="Applications">
            <Table verticalSpacing="sm" highlightOnHover>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Application</Table.Th>
                  <Table.Th visibleFrom="sm">Namespace</Table.Th>
                  <Table.Th>Status</Table.Th>
                  <Table.Th visibleFrom="sm">Services</Table.Th>
                  <Table.Th ta="right">Ready</Table.Th>
                  <Table.Th>Trouble</Table.Th>
                  <Table.Th ta="right" visibleFrom="sm">
                    Changed
                  </Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {shown.map((a) => {
                  const services = a.services ?? [];
                  return (
                    <Table.Tr key={appID(a.key)}>
                      <Table.Td>
                        <A to={`/apps/${a.key.namespace}/${a.key.name}`} fw={600}>
                          {a.key.name}
                        </A>
                      </Table.Td>
                      <Table.Td visibleFrom="sm">{a.key.namespace}</Table.Td>
                      <Table.Td>
                        <StateBadge state={a.status} />
                      </Table.Td>
                      <Table.Td visibleFrom="sm">{services.map((s) => s.name).join(", ")}</Table.Td>
                      <Table.Td ta="right">
                        {services.reduce((n, s) => n + s.ready, 0)} / {services.reduce((n, s) => n + s.want, 0)}
                      </Table.Td>
                      <Table.Td>
                        <Text size="sm" lineClamp={2} maw={420}>
                          {trouble(a).join("; ") || "–"}
                        </Text>
                      </Table.Td>
                      <Table.Td visibleFrom="sm" ta="right">
                        {ago(a.updatedAt ?? a.createdAt)}
                      </Table.Td>
                    </Table.Tr>
                  );
                })}
              </Table.Tbody>
            </Table>
          </div>
        )}
      </Panel>
    </Page>
  );
}

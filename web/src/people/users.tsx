import {
  ActionIcon,
  Autocomplete,
  Badge,
  Button,
  Checkbox,
  Fieldset,
  Group,
  PasswordInput,
  Select,
  SimpleGrid,
  Stack,
  Table,
  Text,
  TextInput,
} from "@mantine/core";
import { useState } from "react";
import type { components } from "../api/schema";
import type { ClusterView, Grant, List } from "../api/types";
import { clock } from "../format";
import { IconCheck, IconPlus, IconTrash } from "../icons";
import { Loaded, Panel, useActs } from "../parts/basics";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { Form, Rows } from "./parts";
import { grantWords, scopeWords } from "./words";

type User = components["schemas"]["User"];
type Org = components["schemas"]["Org"];
type RoleView = components["schemas"]["RoleView"];
type Change = { user: User; what: "grants" | "password" };

const roles: Grant["role"][] = ["admin", "operator", "developer", "viewer"];
const viewer: Grant = { role: "viewer", org: "*", cluster: "*" };

/** Users lists everybody who may log in here, for admins. */
export function Users() {
  const { client, who } = useSession();
  const { ask, act } = useActs();
  const q = useGet<List<User>>("/v1/users");
  const [making, setMaking] = useState(false);
  const [change, setChange] = useState<Change>();
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [grants, setGrants] = useState<Grant[]>([viewer]);
  const path = (u: User) => `/v1/users/${encodeURIComponent(u.name)}`;
  const patch = async (u: User, body: object) => {
    await client.call("PATCH", path(u), { body });
    q.reload();
  };
  const toggle = { "aria-label": "Show or hide the password", tabIndex: 0 };
  return (
    <Panel
      title="Users"
      actions={
        <Button
          onClick={() => {
            setName("");
            setPassword("");
            setGrants([viewer]);
            setMaking(true);
          }}
        >
          New user
        </Button>
      }
    >
      <Loaded of={q}>
        {(list) => (
          <Rows
            label="Users"
            head={["Name", "May", "Since", "By", ""]}
            empty="There are no users."
            rows={list.items.map((u) => ({
              key: u.name,
              cells: [
                <Group gap="xs">
                  {u.name}
                  {u.disabled && (
                    <Badge color="gray" variant="light" tt="none">
                      disabled
                    </Badge>
                  )}
                </Group>,
                (u.grants ?? []).map((g) => <div key={grantWords(g)}>{grantWords(g)}</div>),
                clock(u.created),
                u.by || "–",
                <Group gap="xs" justify="flex-end" wrap="nowrap">
                  {!u.outside && (
                    <>
                      <Button
                        size="xs"
                        variant="default"
                        aria-label={`Grants of ${u.name}`}
                        onClick={() => (setGrants(u.grants ?? []), setChange({ user: u, what: "grants" }))}
                      >
                        Grants
                      </Button>
                      <Button
                        size="xs"
                        variant="default"
                        aria-label={`New password of ${u.name}`}
                        onClick={() => (setPassword(""), setChange({ user: u, what: "password" }))}
                      >
                        New password
                      </Button>
                    </>
                  )}
                  {u.totp && (
                    <Button
                      size="xs"
                      variant="default"
                      aria-label={`Reset one-time codes of ${u.name}`}
                      onClick={() =>
                        ask({
                          title: `Reset one-time codes of ${u.name}?`,
                          text: "The user then logs in with the password alone, until new ones are enabled.",
                          action: "Reset",
                          danger: true,
                          run: async () => {
                            await client.call("DELETE", path(u) + "/totp");
                            q.reload();
                          },
                          done: `${u.name} logs in with the password alone`,
                        })
                      }
                    >
                      Reset codes
                    </Button>
                  )}
                  {u.name !== who?.user && (
                    <>
                      <Button
                        size="xs"
                        variant="default"
                        aria-label={`${u.disabled ? "Enable" : "Disable"} ${u.name}`}
                        onClick={() =>
                          u.disabled
                            ? void act(() => patch(u, { disabled: false }), `${u.name} may log in again`)
                            : ask({
                                title: `Disable ${u.name}?`,
                                text: "Sessions and access tokens are refused from now on. What the user owns stays.",
                                action: "Disable",
                                danger: true,
                                run: () => patch(u, { disabled: true }),
                                done: `${u.name} is disabled`,
                              })
                        }
                      >
                        {u.disabled ? "Enable" : "Disable"}
                      </Button>
                      <Button
                        size="xs"
                        variant="default"
                        aria-label={`Delete ${u.name}`}
                        onClick={() =>
                          ask({
                            title: `Delete ${u.name}?`,
                            text: "Sessions and access tokens go with the user; applications stay.",
                            action: "Delete",
                            danger: true,
                            run: async () => {
                              await client.call("DELETE", path(u));
                              q.reload();
                            },
                            done: `${u.name} is deleted`,
                          })
                        }
                      >
                        Delete
                      </Button>
                    </>
                  )}
                </Group>,
              ],
            }))}
          />
        )}
      </Loaded>
      <Form
        title="New user"
        action="Make"
        opened={making}
        onClose={() => setMaking(false)}
        submit={async () => {
          await client.call("POST", "/v1/users", { body: { name, password, grants } });
          q.reload();
        }}
      >
        <TextInput
          label="Name"
          required
          maxLength={63}
          autoComplete="off"
          value={name}
          onChange={(e) => setName(e.currentTarget.value)}
          data-autofocus
        />
        <PasswordInput
          label="First password"
          description="The user can change it"
          required
          autoComplete="new-password"
          value={password}
          onChange={(e) => setPassword(e.currentTarget.value)}
          visibilityToggleButtonProps={toggle}
        />
        <Grants value={grants} onChange={setGrants} />
      </Form>
      <Form
        title={
          change?.what === "grants" ? `What ${change.user.name} may do` : `New password of ${change?.user.name ?? ""}`
        }
        action="Save"
        opened={change !== undefined}
        onClose={() => setChange(undefined)}
        submit={() => patch(change!.user, change!.what === "grants" ? { grants } : { password })}
      >
        {change?.what === "grants" ? (
          <Grants value={grants} onChange={setGrants} />
        ) : (
          <PasswordInput
            label="New password"
            required
            autoComplete="new-password"
            value={password}
            onChange={(e) => setPassword(e.currentTarget.value)}
            visibilityToggleButtonProps={toggle}
          />
        )}
      </Form>
    </Panel>
  );
}

/** Grants edits roles by organisation and cluster. */
function Grants({ value, onChange }: { value: Grant[]; onChange: (g: Grant[]) => void }) {
  const { who, can } = useSession();
  const root = who?.role === "root";
  const orgs = useGet<List<Org>>("/v1/orgs");
  const clusters = useGet<List<ClusterView>>(root && can("clusters:read") ? "/v1/clusters" : null);
  const names = root ? (clusters.data?.items ?? []).map((c) => c.name) : [who?.site ?? ""];
  const set = (n: number, g: Partial<Grant>) => onChange(value.map((old, i) => (i === n ? { ...old, ...g } : old)));
  return (
    <Stack gap="xs">
      {value.map((g, n) => (
        <Fieldset key={n} legend={`Grant ${n + 1}`} p="xs">
          <SimpleGrid cols={{ base: 1, xs: 3 }} spacing="xs">
            <Select
              label="Role"
              data={roles}
              value={g.role}
              allowDeselect={false}
              onChange={(v) => v && set(n, { role: v as Grant["role"] })}
            />
            <Autocomplete
              label="Organisation"
              description="* is all"
              data={["*", ...(orgs.data?.items ?? []).map((o) => o.name)]}
              value={g.org}
              onChange={(v) => set(n, { org: v })}
              required
            />
            <Autocomplete
              label="Cluster"
              description="* is all"
              data={["*", ...names]}
              value={g.cluster}
              onChange={(v) => set(n, { cluster: v })}
              required
            />
          </SimpleGrid>
          <Group justify="flex-end" mt="xs">
            <ActionIcon
              variant="default"
              size={32}
              aria-label={`Take grant ${n + 1} away`}
              onClick={() => onChange(value.filter((_, i) => i !== n))}
            >
              <IconTrash size={16} aria-hidden />
            </ActionIcon>
          </Group>
        </Fieldset>
      ))}
      <div>
        <Button
          size="xs"
          variant="default"
          leftSection={<IconPlus size={14} aria-hidden />}
          onClick={() => onChange([...value, viewer])}
        >
          One more grant
        </Button>
      </div>
    </Stack>
  );
}

/** Roles is a table of what each role may do where it is granted. */
export function Roles() {
  const { who } = useSession();
  const q = useGet<List<RoleView>>("/v1/roles");
  const [own, setOwn] = useState(false);
  return (
    <Panel
      title="What each role may do, where it is granted"
      actions={<Checkbox label="Only my permissions" checked={own} onChange={(e) => setOwn(e.currentTarget.checked)} />}
    >
      <Loaded of={q}>
        {(list) => {
          const all = [...new Set(list.items.flatMap((r) => r.scopes ?? []))].filter(
            (s) => !own || who?.scopes?.includes(s),
          );
          return (
            <div className="table-wrap" tabIndex={0} role="region" aria-label="Roles">
              <Table>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>Permissions</Table.Th>
                    <Table.Th>Scope</Table.Th>
                    {list.items.map((r) => (
                      <Table.Th key={r.role} ta="center" tt="capitalize">
                        {r.role}
                      </Table.Th>
                    ))}
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {all.map((s) => (
                    <Table.Tr key={s}>
                      <Table.Th fw={400}>{scopeWords(s)}</Table.Th>
                      <Table.Td className="mono">{s}</Table.Td>
                      {list.items.map((r) => (
                        <Table.Td key={r.role} ta="center">
                          {r.scopes?.includes(s) ? (
                            <IconCheck size={18} aria-label="yes" role="img" />
                          ) : (
                            <Text span c="dimmed" aria-label="no">
                              –
                            </Text>
                          )}
                        </Table.Td>
                      ))}
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </div>
          );
        }}
      </Loaded>
    </Panel>
  );
}

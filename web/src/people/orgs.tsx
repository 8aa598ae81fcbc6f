import {
  Badge,
  Button,
  FileInput,
  Group,
  NumberInput,
  Progress,
  Select,
  SimpleGrid,
  Stack,
  Text,
  Textarea,
  TextInput,
} from "@mantine/core";
import { useState } from "react";
import type { components } from "../api/schema";
import type { List } from "../api/types";
import { bytes, clock, cores, parseBytes, parseCPU } from "../format";
import { Empty, Loaded, Panel, useActs } from "../parts/basics";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { Form, Rows } from "./parts";
import { certificateState } from "./words";

type Org = components["schemas"]["Org"];
type Usage = components["schemas"]["Usage"];
type Namespace = components["schemas"]["Namespace"];
type CertificateView = components["schemas"]["CertificateView"];

/** Orgs shows organisations with what they use of their quota, their namespaces and certificates. */
export function Orgs() {
  const { client, can } = useSession();
  const { ask } = useActs();
  const orgs = useGet<List<Org>>("/v1/orgs");
  const spaces = useGet<List<Namespace>>("/v1/namespaces");
  const [making, setMaking] = useState<"org" | "namespace">();
  const [quota, setQuota] = useState<Org>();
  const [name, setName] = useState("");
  const [org, setOrg] = useState("");
  const admin = can("orgs:admin");
  return (
    <Stack>
      <Panel
        title="Organisations"
        actions={admin && <Button onClick={() => (setName(""), setMaking("org"))}>New organisation</Button>}
      >
        <Loaded of={orgs}>
          {(list) =>
            list.items.length === 0 ? (
              <Empty>There are no organisations that you may see.</Empty>
            ) : (
              <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }}>
                {list.items.map((o) => (
                  <Use
                    key={o.name}
                    org={o}
                    actions={
                      admin && (
                        <>
                          <Button
                            size="xs"
                            variant="default"
                            aria-label={`Quota of ${o.name}`}
                            onClick={() => setQuota(o)}
                          >
                            Quota
                          </Button>
                          <Button
                            size="xs"
                            variant="default"
                            aria-label={`Delete ${o.name}`}
                            onClick={() =>
                              ask({
                                title: `Delete ${o.name}?`,
                                text: "An organisation can be deleted once it has no namespaces.",
                                action: "Delete",
                                danger: true,
                                run: () =>
                                  client.call("DELETE", `/v1/orgs/${encodeURIComponent(o.name)}`).then(orgs.reload),
                                done: `${o.name} is deleted`,
                              })
                            }
                          >
                            Delete
                          </Button>
                        </>
                      )
                    }
                  />
                ))}
              </SimpleGrid>
            )
          }
        </Loaded>
      </Panel>
      <Panel
        title="Namespaces"
        actions={admin && <Button onClick={() => (setName(""), setMaking("namespace"))}>New namespace</Button>}
      >
        <Loaded of={spaces}>
          {(list) => (
            <Rows
              label="Namespaces"
              head={["Name", "Organisation", ""]}
              empty="There are no namespaces that you may see."
              rows={list.items.map((n) => ({
                key: n.name,
                cells: [
                  n.name,
                  n.org,
                  admin && (
                    <Button
                      size="xs"
                      variant="default"
                      aria-label={`Delete ${n.name}`}
                      onClick={() =>
                        ask({
                          title: `Delete ${n.name}?`,
                          text: "A namespace can be deleted once it has no applications and no images.",
                          action: "Delete",
                          danger: true,
                          run: () =>
                            client.call("DELETE", `/v1/namespaces/${encodeURIComponent(n.name)}`).then(spaces.reload),
                          done: `${n.name} is deleted`,
                        })
                      }
                    >
                      Delete
                    </Button>
                  ),
                ],
              }))}
            />
          )}
        </Loaded>
      </Panel>
      <Form
        title={making === "org" ? "New organisation" : "New namespace"}
        action="Make"
        opened={making !== undefined}
        onClose={() => setMaking(undefined)}
        submit={async () => {
          if (making === "org") await client.call("POST", "/v1/orgs", { body: { name, quota: {} } }).then(orgs.reload);
          else await client.call("POST", "/v1/namespaces", { body: { name, org } }).then(spaces.reload);
        }}
      >
        <TextInput
          label="Name"
          required
          maxLength={63}
          value={name}
          onChange={(e) => setName(e.currentTarget.value)}
          data-autofocus
        />
        {making === "namespace" && (
          <Select
            label="Organisation"
            required
            data={(orgs.data?.items ?? []).map((o) => o.name)}
            value={org || null}
            onChange={(v) => setOrg(v ?? "")}
          />
        )}
      </Form>
      {quota && <Quota org={quota} onClose={() => setQuota(undefined)} onDone={orgs.reload} />}
    </Stack>
  );
}

/** Use shows how much of its quota an organisation has. */
function Use({ org, actions }: { org: Org; actions: React.ReactNode }) {
  const q = useGet<Usage>(`/v1/orgs/${encodeURIComponent(org.name)}/usage`, 15);
  const quota = org.quota;
  return (
    <Stack
      gap="xs"
      p="sm"
      style={{ border: "1px solid var(--mantine-color-default-border)", borderRadius: "var(--mantine-radius-md)" }}
    >
      <Group justify="space-between">
        <Text fw={700}>{org.name}</Text>
        <Group gap="xs">{actions}</Group>
      </Group>
      <Loaded of={q}>
        {(u) => {
          const need = u.need ?? {};
          const rows: [string, number, number, (n: number) => string][] = [
            ["Instances", u.instances, quota.instances ?? 0, String],
            ["CPU", parseCPU(need.cpu as string), parseCPU(quota.cpu as string), cores],
            ["Memory", parseBytes(need.memory as string), parseBytes(quota.memory as string), bytes],
            ["Storage", parseBytes(need.storage as string), parseBytes(quota.storage as string), bytes],
            ["Service addresses", u.serviceAddresses, quota.serviceAddresses ?? 0, String],
            ["Pushed images", parseBytes(u.pushed), parseBytes(quota.pushed as string) || pushedByDefault, bytes],
            [
              "Definitions",
              parseBytes(u.definitions),
              parseBytes(quota.definitions as string) || definitionsByDefault,
              bytes,
            ],
          ];
          return (
            <>
              {rows.map(([what, used, most, tell]) => (
                <div key={what}>
                  <Group justify="space-between" gap="xs">
                    <Text size="sm">{what}</Text>
                    <Text size="sm">{most ? `${tell(used)} of ${tell(most)}` : `${tell(used)}, no limit`}</Text>
                  </Group>
                  {most > 0 && (
                    <Progress
                      value={Math.min(100, (100 * used) / most)}
                      color={used > 0.9 * most ? "orange" : undefined}
                      aria-label={`${what} of ${org.name}`}
                    />
                  )}
                </div>
              ))}
            </>
          );
        }}
      </Loaded>
    </Stack>
  );
}

/** An organisation may push so many bytes where its quota says nothing. */
const pushedByDefault = 16 * 2 ** 30;

/** Its applications and secrets may take so many bytes of the store where its quota says nothing. */
const definitionsByDefault = 2 ** 30;

function Quota({ org, onClose, onDone }: { org: Org; onClose: () => void; onDone: () => void }) {
  const { client } = useSession();
  const [q, setQ] = useState(() => ({
    cpu: String(org.quota.cpu ?? ""),
    memory: String(org.quota.memory ?? ""),
    storage: String(org.quota.storage ?? ""),
    pushed: String(org.quota.pushed ?? ""),
    definitions: String(org.quota.definitions ?? ""),
    instances: org.quota.instances || ("" as number | string),
    serviceAddresses: org.quota.serviceAddresses || ("" as number | string),
  }));
  const text = (k: "cpu" | "memory" | "storage" | "pushed" | "definitions", label: string, example: string) => (
    <TextInput
      label={label}
      placeholder={example}
      value={q[k]}
      onChange={(e) => setQ({ ...q, [k]: e.currentTarget.value.trim() })}
    />
  );
  return (
    <Form
      title={`Quota of ${org.name}`}
      action="Save"
      opened
      onClose={onClose}
      submit={async () => {
        const body = Object.fromEntries(Object.entries(q).filter(([, v]) => v !== "" && v !== 0));
        await client.call("PUT", `/v1/orgs/${encodeURIComponent(org.name)}/quota`, { body });
        onDone();
      }}
    >
      <Text size="sm">Total resources that its instances may request. An empty field means no limit.</Text>
      {text("cpu", "CPU, in cores", "4 or 500m")}
      {text("memory", "Memory", "8Gi")}
      {text("storage", "Storage", "100Gi")}
      {text("pushed", "Pushed images (16Gi if empty)", "100Gi")}
      {text("definitions", "Applications and secrets in the store (1Gi if empty)", "64Mi")}
      <NumberInput
        label="Instances"
        min={0}
        allowDecimal={false}
        value={q.instances}
        onChange={(v) => setQ({ ...q, instances: v })}
      />
      <NumberInput
        label="Service addresses"
        min={0}
        allowDecimal={false}
        value={q.serviceAddresses}
        onChange={(v) => setQ({ ...q, serviceAddresses: v })}
      />
    </Form>
  );
}

/** Certificates are those that an organisation's host names are served with. */
export function Certificates() {
  const { client, can } = useSession();
  const { ask } = useActs();
  const orgs = useGet<List<Org>>("/v1/orgs");
  const [chosen, setChosen] = useState<string | null>(null);
  const org = chosen ?? orgs.data?.items[0]?.name ?? null;
  const path = org === null ? null : `/v1/orgs/${encodeURIComponent(org)}/certificates`;
  const q = useGet<List<CertificateView>>(path);
  const [putting, setPutting] = useState(false);
  const [name, setName] = useState("");
  const [chain, setChain] = useState("");
  const [key, setKey] = useState("");
  const write = can("apps:write");
  const read = (set: (s: string) => void) => async (f: File | null) => set(f ? await f.text() : "");
  return (
    <Panel
      title="Certificates"
      actions={
        write &&
        org && (
          <Button onClick={() => (setName(""), setChain(""), setKey(""), setPutting(true))}>Put certificate</Button>
        )
      }
    >
      <Select
        label="Organisation"
        mb="md"
        maw={320}
        data={(orgs.data?.items ?? []).map((o) => o.name)}
        value={org}
        onChange={setChosen}
        allowDeselect={false}
      />
      {path === null ? (
        <Empty>There are no organisations that you may see.</Empty>
      ) : (
        <Loaded of={q}>
          {(list) => (
            <Rows
              label="Certificates"
              head={["Name", "Host names", "State", "Until", "By", ""]}
              empty="There are none of its own; host names are served with certificates of the site’s own authority."
              rows={list.items.map((c) => {
                const s = certificateState(c.notBefore, c.notAfter);
                return {
                  key: c.name,
                  cells: [
                    c.name,
                    (c.hosts ?? []).join(", "),
                    <Badge variant="light" color={s.colour} tt="none">
                      {s.text}
                    </Badge>,
                    clock(c.notAfter),
                    c.issuer ?? "–",
                    write && (
                      <Button
                        size="xs"
                        variant="default"
                        aria-label={`Delete ${c.name}`}
                        onClick={() =>
                          ask({
                            title: `Delete the certificate ${c.name}?`,
                            text: "Its host names are served with certificates of the site’s own authority then, which browsers do not know.",
                            action: "Delete",
                            danger: true,
                            run: () => client.call("DELETE", `${path}/${encodeURIComponent(c.name)}`).then(q.reload),
                            done: `${c.name} is deleted`,
                          })
                        }
                      >
                        Delete
                      </Button>
                    ),
                  ],
                };
              })}
            />
          )}
        </Loaded>
      )}
      <Form
        title="Put a certificate"
        action="Put"
        opened={putting}
        onClose={() => setPutting(false)}
        submit={async () => {
          await client.call("PUT", `${path}/${encodeURIComponent(name)}`, { body: { certificate: chain, key } });
          setKey("");
          q.reload();
        }}
      >
        <TextInput
          label="Name"
          description="One that is there already is replaced"
          required
          maxLength={63}
          value={name}
          onChange={(e) => setName(e.currentTarget.value)}
          data-autofocus
        />
        <FileInput
          label="File with the chain"
          accept=".pem,.crt,.cer"
          onChange={read(setChain)}
          clearable
          clearButtonProps={{ "aria-label": "No file" }}
        />
        <Textarea
          label="or the chain’s text, in PEM"
          rows={4}
          value={chain}
          onChange={(e) => setChain(e.currentTarget.value)}
          spellCheck={false}
          styles={{ input: { fontFamily: "monospace" } }}
          required
        />
        <FileInput
          label="File with the private key"
          description="Nobody can read it back"
          accept=".pem,.key"
          onChange={read(setKey)}
          clearable
          clearButtonProps={{ "aria-label": "No file" }}
        />
        <Textarea
          label="or the key’s text, in PEM"
          rows={4}
          value={key}
          onChange={(e) => setKey(e.currentTarget.value)}
          spellCheck={false}
          autoComplete="off"
          styles={{ input: { fontFamily: "monospace" } }}
          required
        />
      </Form>
    </Panel>
  );
}

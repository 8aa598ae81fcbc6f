import { Alert, Button, Grid, Group, Modal, Select, Stack, Table, Tabs, Text } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { Suspense, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useBlocker, useNavigate, useParams } from "react-router-dom";
import { ApiError } from "../api/client";
import type { FieldProblem, List, Plan, Version } from "../api/types";
import { fresh, Manifest, manifestText, type Path, parsePath } from "../build/document";
import { Fields, type FormContext, ServiceForm } from "../build/form";
import type { Selected } from "../build/graph";
import { resolve, type Schema } from "../build/schema";
import { Start } from "../build/start";
import { count } from "../format";
import { Loaded, Page, Panel, Problem, useActs } from "../parts/basics";
import { later } from "../parts/later";
import { soon, unreachable, useGet } from "../state/query";
import { useSession } from "../state/session";

const Graph = later(() => import("../build/graph"));
const Yaml = later(() => import("../parts/yaml"));

/** Build lets an application be drawn, filled in and written, all three at once, looks where it would go, and applies it. */
export default function Build() {
  const { namespace, app } = useParams();
  const schema = useGet<Schema>("/schema/application.json");
  const existing = useGet<Version>(
    app ? `/v1/apps/${encodeURIComponent(namespace ?? "")}/${encodeURIComponent(app)}/manifest` : null,
  );
  return (
    <Loaded of={schema}>
      {(s) =>
        app ? (
          <Loaded of={existing}>
            {(v) => (
              <Editor key={app} schema={s} text={manifestText(v.manifest)} generation={v.generation} name={app} />
            )}
          </Loaded>
        ) : (
          <Editor schema={s} text={fresh} />
        )
      }
    </Loaded>
  );
}

interface Checked {
  text: string;
  plan?: Plan;
  error?: unknown;
}

function Editor({
  schema,
  text,
  generation,
  name,
}: {
  schema: Schema;
  text: string;
  generation?: number;
  name?: string;
}) {
  const { client } = useSession();
  const { act } = useActs();
  const go = useNavigate();
  const [m, setM] = useState(() => new Manifest(text));
  const good = useRef(m);
  if (!m.broken) good.current = m;
  const [selected, setSelected] = useState<Selected>({ service: 0 });
  const [checked, setChecked] = useState<Checked>();
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const [brief, setBrief] = useState(!name);
  const saved = useRef(false);
  const namespaces = useGet<List<{ name: string }>>("/v1/namespaces");

  // The server says whether it is valid and where it would go: it alone knows what is there.
  const [asked] = useDebouncedValue(m.text, 700);
  useEffect(() => {
    if (new Manifest(asked).broken) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const ask = () =>
      client.call<Plan>("POST", "/v1/plan", { body: asked, type: "application/yaml", signal: stop.signal }).then(
        (plan) => setChecked({ text: asked, plan }),
        (error) => {
          if (stop.signal.aborted) return;
          setChecked({ text: asked, error });
          if (unreachable(error)) timer = setTimeout(ask, soon);
        },
      );
    void ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [client, asked]);

  const current = checked?.text === m.text ? checked : undefined;
  const dirty = m.text !== text;
  // Before anything is entered, what is still missing is no mistake.
  const judged = dirty || !!name;
  const problems: FieldProblem[] = useMemo(
    () => (judged && checked?.error instanceof ApiError ? checked.error.problems : []),
    [checked, judged],
  );
  const errors = useMemo(
    () => new Map(problems.map((p) => [p.path, p.message + (p.hint ? ` (${p.hint})` : "")])),
    [problems],
  );
  const wrong = useMemo(() => {
    const out = new Set<number>();
    for (const p of problems) {
      const [, list, n] = parsePath(p.path);
      if (list === "services" && typeof n === "number") out.add(n);
    }
    return out;
  }, [problems]);
  const marks = useMemo(() => (m.broken || current ? m.marks(problems) : []), [m, current, problems]);

  const shown = m.broken ? good.current : m;
  const set = useCallback((path: Path, value: unknown) => {
    setM((old) => {
      if (old.broken) return old;
      const isName = path.length === 4 && path[0] === "spec" && path[1] === "services" && path[3] === "name";
      return isName ? old.rename(path[2] as number, String(value ?? "")) : old.set(path, value);
    });
  }, []);
  const names = shown.services.map((s) => s.name ?? "").join(" ");
  const c: FormContext = useMemo(
    () => ({ root: schema, errors, set, suggestions: { service: names.split(" ") } }),
    [schema, errors, set, names],
  );
  const serviceSchema = resolve(schema, { $ref: "#/$defs/ServiceSpec" });
  const index = Math.min(selected.service ?? -1, shown.services.length - 1);
  const service = shown.services[index];
  const link = selected.link && shown.services[selected.link.from]?.links?.[selected.link.n];

  const blocker = useLeave(dirty, saved);

  const back = name ? `/apps/${good.current.model.metadata?.namespace ?? "default"}/${name}` : "/apps";
  const title = name ? "Edit " + name : "New application";
  const apply = async (register: boolean) => {
    setBusy(true);
    const meta = m.model.metadata;
    const ok = await act(
      () =>
        client.call("POST", "/v1/apps", {
          body: m.text,
          type: "application/yaml",
          query: { register: register || undefined, expectGeneration: generation },
        }),
      register ? "It is stored; deploy it when you like" : "It is applied",
    );
    setBusy(false);
    if (!ok) return;
    saved.current = true;
    setAsking(false);
    go(`/apps/${meta?.namespace ?? "default"}/${meta?.name}`);
  };

  return (
    <Page
      title={title}
      sub={
        <span role="status">
          {m.broken
            ? "The text is not YAML yet"
            : !current
              ? "Checking …"
              : current.error
                ? !judged
                  ? "Name it, and say which image it runs"
                  : problems.length
                    ? count(problems.length, "thing is", "things are") + " not valid yet"
                    : "It cannot be applied as it is"
                : "Valid: " + summary(current.plan!)}
        </span>
      }
      actions={
        <>
          <Button variant="default" onClick={() => go(back)}>
            Cancel
          </Button>
          <Button disabled={!current?.plan} onClick={() => setAsking(true)}>
            Plan and apply
          </Button>
        </>
      }
    >
      {current?.error !== undefined && (judged || unreachable(current.error)) && <Problem error={current.error} />}
      <Grid>
        <Grid.Col span={{ base: 12, lg: 7 }}>
          {brief && shown.services.length < 2 ? (
            <Stack>
              {m.broken && <Paused why={m.broken.message} />}
              <Start c={c} m={shown} service={serviceSchema} onMore={() => setBrief(false)} />
            </Stack>
          ) : (
            <Stack>
              <Panel
                title="Services"
                actions={
                  <Button
                    size="xs"
                    variant="default"
                    disabled={!!m.broken}
                    onClick={() => {
                      setSelected({ service: m.services.length });
                      setM(m.addService());
                    }}
                  >
                    Add service
                  </Button>
                }
              >
                <Suspense fallback={<Text>Loading …</Text>}>
                  <Graph
                    m={shown}
                    wrong={wrong}
                    selected={selected}
                    onSelect={setSelected}
                    onChange={(n) => !m.broken && setM(n)}
                  />
                </Suspense>
                <Text size="xs" c="dimmed" mt="xs">
                  Draw from the right side of a service to the left side of another that it talks to. An arrow’s limits
                  are entered below once it is chosen; links can also be entered under Network.
                </Text>
              </Panel>
              {m.broken && <Paused why={m.broken.message} />}
              {link && selected.link && (
                <Panel
                  title={`${shown.services[selected.link.from]!.name} → ${link.service}`}
                  actions={
                    <Button
                      size="xs"
                      variant="default"
                      color="red"
                      onClick={() => {
                        setM(m.unlink(selected.link!.from, selected.link!.n));
                        setSelected({ service: selected.link!.from });
                      }}
                    >
                      Remove link
                    </Button>
                  }
                >
                  <Fields
                    c={c}
                    schema={{ $ref: "#/$defs/Link" }}
                    path={["spec", "services", selected.link.from, "links", selected.link.n]}
                    value={link as unknown as Record<string, unknown>}
                  />
                </Panel>
              )}
              <Tabs defaultValue="service" keepMounted={false}>
                <Tabs.List mb="md">
                  <Tabs.Tab value="service">Service</Tabs.Tab>
                  <Tabs.Tab value="application">Application</Tabs.Tab>
                </Tabs.List>
                <Tabs.Panel value="service">
                  {shown.services.length > 0 && (
                    <Group align="flex-end" mb="md">
                      <Select
                        label="Service to fill in"
                        data={shown.services.map((s, i) => ({ value: String(i), label: s.name || `service ${i + 1}` }))}
                        value={index >= 0 ? String(index) : null}
                        allowDeselect={false}
                        onChange={(v) => setSelected({ service: Number(v) })}
                      />
                      {service && (
                        <Button
                          variant="default"
                          color="red"
                          disabled={!!m.broken}
                          onClick={() => {
                            setM(m.removeService(index));
                            setSelected({ service: Math.max(0, index - 1) });
                          }}
                        >
                          Remove service
                        </Button>
                      )}
                    </Group>
                  )}
                  {service ? (
                    <ServiceForm c={c} service={serviceSchema} path={["spec", "services", index]} value={service} />
                  ) : (
                    <Text c="dimmed">Choose a service in the drawing, or add one.</Text>
                  )}
                </Tabs.Panel>
                <Tabs.Panel value="application">
                  <Fields
                    c={{ ...c, suggestions: { namespace: (namespaces.data?.items ?? []).map((n) => n.name) } }}
                    schema={{ $ref: "#/$defs/Metadata" }}
                    path={["metadata"]}
                    value={(shown.model.metadata ?? {}) as Record<string, unknown>}
                  />
                </Tabs.Panel>
              </Tabs>
            </Stack>
          )}
        </Grid.Col>
        <Grid.Col span={{ base: 12, lg: 5 }}>
          <div className="beside">
            <Panel title="YAML">
              <Suspense fallback={<Text>Loading …</Text>}>
                <Yaml label="Manifest as YAML" value={m.text} onChange={(t) => setM(new Manifest(t))} marks={marks} />
              </Suspense>
            </Panel>
          </div>
        </Grid.Col>
      </Grid>
      <Modal
        opened={asking}
        onClose={() => setAsking(false)}
        size="xl"
        title="Where it would go"
        closeButtonProps={{ "aria-label": "Close" }}
      >
        {current?.plan && <PlanView plan={current.plan} />}
        <Group justify="flex-end" mt="md">
          <Button variant="default" onClick={() => setAsking(false)}>
            Back
          </Button>
          {!name && (
            <Button variant="default" loading={busy} onClick={() => void apply(true)}>
              Only store
            </Button>
          )}
          <Button loading={busy} disabled={!current?.plan} onClick={() => void apply(false)} data-autofocus>
            Apply
          </Button>
        </Group>
      </Modal>
      {blocker}
    </Page>
  );
}

function Paused({ why }: { why: string }) {
  return (
    <Alert color="orange" variant="light" title="The form is paused">
      The text cannot be read as YAML: {why}
    </Alert>
  );
}

function summary(p: Plan): string {
  const list = p.instances ?? [];
  const placed = list.filter((i) => i.cluster || i.worker || i.copies).length;
  return placed === list.length
    ? count(placed, "instance") + " would find a place"
    : `${placed} of ${count(list.length, "instance")} would find a place`;
}

function PlanView({ plan }: { plan: Plan }) {
  return (
    <Stack>
      {(plan.lost ?? []).length > 0 && (
        <Alert color="red" variant="light" title="This cannot be undone">
          {plan.lost!.map((l, i) => (
            <div key={i}>{l}</div>
          ))}
        </Alert>
      )}
      <div className="table-wrap">
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Service</Table.Th>
              <Table.Th>{plan.tier === "root" ? "Cluster" : "Worker"}</Table.Th>
              <Table.Th>Why</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {(plan.instances ?? []).map((i, n) => {
              const at = i.worker || i.cluster;
              const d = i.decision;
              const why = (d?.why ?? []).map((r) => r.text + (r.hint ? ` – ${r.hint}` : ""));
              for (const t of d?.top ?? [])
                if (t.out) why.push(`${t.name}: ${t.out.text}${t.out.hint ? ` – ${t.out.hint}` : ""}`);
              return (
                <Table.Tr key={n}>
                  <Table.Td>{i.service}</Table.Td>
                  <Table.Td>{at || (i.copies ? count(i.copies, "worker") : <b>nowhere</b>)}</Table.Td>
                  <Table.Td>
                    {i.kept ? "stays" : ""}
                    {why.map((w, k) => (
                      <Text key={k} size="sm">
                        {w}
                      </Text>
                    ))}
                    {!i.kept && why.length === 0 && at && d ? `the best of ${d.considered}` : ""}
                  </Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </div>
    </Stack>
  );
}

/** useLeave asks before what was entered is left. */
function useLeave(dirty: boolean, saved: { current: boolean }) {
  useEffect(() => {
    if (!dirty) return;
    const ask = (e: BeforeUnloadEvent) => e.preventDefault();
    window.addEventListener("beforeunload", ask);
    return () => window.removeEventListener("beforeunload", ask);
  }, [dirty]);
  const b = useBlocker(
    ({ currentLocation, nextLocation }) =>
      dirty && !saved.current && currentLocation.pathname !== nextLocation.pathname,
  );
  return (
    <Modal
      opened={b.state === "blocked"}
      onClose={() => b.reset?.()}
      title="Leave without applying?"
      centered
      closeButtonProps={{ "aria-label": "Close" }}
    >
      <Text>Your changes will be lost.</Text>
      <Group justify="flex-end" mt="md">
        <Button variant="default" onClick={() => b.reset?.()} data-autofocus>
          Stay
        </Button>
        <Button color="red" onClick={() => b.proceed?.()}>
          Leave
        </Button>
      </Group>
    </Modal>
  );
}

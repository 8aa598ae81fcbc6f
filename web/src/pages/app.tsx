import {
  ActionIcon,
  Alert,
  Badge,
  Box,
  Button,
  Group,
  Menu,
  NumberInput,
  Popover,
  Progress,
  SimpleGrid,
  Stack,
  Table,
  Tabs,
  Text,
} from "@mantine/core";
import { type ReactNode, Suspense, useMemo, useState } from "react";
import { Link, useNavigate, useParams, useSearchParams } from "react-router-dom";
import type { AppView, Instance, ServiceView, Version } from "../api/types";
import { manifestText } from "../build/document";
import { ago, bytes, clock, cores, parseBytes, parseCPU } from "../format";
import { IconDotsVertical } from "../icons";
import { A, Empty, Loaded, Page, Panel, useActs } from "../parts/basics";
import { Events } from "../parts/events";
import { IngressLine } from "../parts/ingress";
import { Folded, InstanceTable } from "../parts/instances";
import { later } from "../parts/later";
import { StateBadge } from "../parts/state";
import { useReadApp, Versions } from "../parts/versions";
import { useSession } from "../state/session";
import { trouble } from "../state/trouble";
import { appID, useWatch } from "../state/watch";

const Yaml = later(() => import("../parts/yaml"));

/** AppPage shows one application: how it does, what it consists of, and what can be done with it. */
export default function AppPage() {
  const { namespace = "", app: name = "" } = useParams();
  const { client, can } = useSession();
  const fleet = useWatch(client, { kinds: ["app", "instance", "event"], namespace, app: name });
  const [params, setParams] = useSearchParams();
  const go = useNavigate();
  const { ask } = useActs();
  const path = `/v1/apps/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const app = fleet.apps.get(appID({ namespace, name }));
  const instances = useMemo(
    () => [...fleet.instances.values()].sort((a, b) => a.id.localeCompare(b.id)),
    [fleet.instances],
  );
  if (!app)
    return (
      <Page title={name}>
        <Panel>
          <Empty>{fleet.synced ? "There is no such application, or it has been deleted." : "Loading …"}</Empty>
        </Panel>
      </Page>
    );
  const why = trouble(app);
  const write = can("apps:write");
  const actions = write && (
    <>
      <Button component={Link} variant="default" to={`/build/${namespace}/${name}`}>
        Edit
      </Button>
      {!app.deployed && <ActButton path={path + "/deploy"} label="Deploy" done={`${name} is being deployed`} />}
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon variant="default" size={36} aria-label="More actions">
            <IconDotsVertical size={18} aria-hidden />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item
            onClick={() =>
              ask({
                title: `Restart ${name}?`,
                text: "Its instances are replaced one at a time.",
                action: "Restart",
                run: () => client.call("POST", path + "/restart"),
                done: `${name} restarts`,
              })
            }
          >
            Restart
          </Menu.Item>
          <Menu.Item
            color="red"
            onClick={() =>
              ask({
                title: `Delete ${name}?`,
                text: "All its instances are stopped. Its local volumes are kept, except those with reclaim: delete.",
                action: "Delete",
                danger: true,
                run: async () => {
                  await client.call("DELETE", path);
                  go("/apps");
                },
                done: `${name} is being deleted`,
              })
            }
          >
            Delete
          </Menu.Item>
          <Menu.Item
            color="red"
            onClick={() =>
              ask({
                title: `Delete ${name} and its data?`,
                text: "All its instances are stopped, and its local volumes are removed with what is in them.",
                action: "Delete with volumes",
                danger: true,
                run: async () => {
                  await client.call("DELETE", path, { query: { volumes: "true" } });
                  go("/apps");
                },
                done: `${name} is being deleted, with its volumes`,
              })
            }
          >
            Delete with volumes
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </>
  );
  return (
    <Page
      title={name}
      sub={
        <Group gap="xs">
          <StateBadge state={app.status} />
          <span>
            {namespace} · generation {app.generation} · changed {ago(app.updatedAt ?? app.createdAt)} ago
            {app.author && " by " + app.author}
          </span>
        </Group>
      }
      actions={actions}
    >
      {why.length > 0 && (
        <Alert color="orange" variant="light" title="There are problems">
          {why.map((w, i) => (
            <div key={i}>{w}</div>
          ))}
        </Alert>
      )}
      <Tabs
        value={params.get("tab") ?? "services"}
        onChange={(t) => setParams(t && t !== "services" ? { tab: t } : {}, { replace: true })}
        keepMounted={false}
      >
        <Tabs.List mb="md">
          <Tabs.Tab value="services">Services</Tabs.Tab>
          <Tabs.Tab value="instances">Instances {fleet.synced && `(${instances.length})`}</Tabs.Tab>
          <Tabs.Tab value="events">Events</Tabs.Tab>
          <Tabs.Tab value="versions">Versions</Tabs.Tab>
          <Tabs.Tab value="manifest">Manifest</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="services">
          <SimpleGrid cols={{ base: 1, lg: 2 }}>
            {(app.services ?? []).map((s) => (
              <Service
                key={s.name}
                app={app}
                s={s}
                path={path}
                write={write}
                running={instances.filter((i) => i.service.service === s.name && i.state === "Running")}
              />
            ))}
          </SimpleGrid>
        </Tabs.Panel>
        <Tabs.Panel value="instances">
          <Folded list={instances}>
            {(shown) => (
              <Panel pad={0}>
                <InstanceTable
                  list={shown}
                  empty={
                    instances.length
                      ? "All its instances are finished runs."
                      : fleet.synced
                        ? "It has no instances."
                        : "Loading …"
                  }
                />
              </Panel>
            )}
          </Folded>
        </Tabs.Panel>
        <Tabs.Panel value="events">
          <Panel>
            <Events of={fleet} max={300} />
          </Panel>
        </Tabs.Panel>
        <Tabs.Panel value="versions">
          <Versions path={path} name={name} write={write} generation={app.generation} />
        </Tabs.Panel>
        <Tabs.Panel value="manifest">
          <Manifest path={path} generation={app.generation} />
        </Tabs.Panel>
      </Tabs>
    </Page>
  );
}

function ActButton({ path, label, done, body }: { path: string; label: string; done: string; body?: unknown }) {
  const { client } = useSession();
  const { act } = useActs();
  const [busy, setBusy] = useState(false);
  return (
    <Button
      loading={busy}
      onClick={async () => {
        setBusy(true);
        await act(() => client.call("POST", path, { body }), done);
        setBusy(false);
      }}
    >
      {label}
    </Button>
  );
}

/** Scale asks for a number of instances. */
function Scale({ path, s }: { path: string; s: ServiceView }) {
  const { client } = useSession();
  const { act } = useActs();
  const [open, setOpen] = useState(false);
  const [n, setN] = useState<number | string>(s.want);
  return (
    <Popover opened={open} onChange={setOpen} trapFocus returnFocus position="bottom-end" withArrow>
      <Popover.Target>
        <Button
          size="xs"
          variant="default"
          onClick={() => {
            setN(s.want);
            setOpen((o) => !o);
          }}
        >
          Scale
        </Button>
      </Popover.Target>
      <Popover.Dropdown aria-label={"Scale " + s.name}>
        <form
          onSubmit={async (e) => {
            e.preventDefault();
            if (
              await act(
                () =>
                  client.call("PUT", `${path}/services/${encodeURIComponent(s.name)}/scale`, {
                    body: { replicas: Number(n) },
                  }),
                `${s.name} is asked for ${n} times`,
              )
            )
              setOpen(false);
          }}
        >
          <Group align="flex-end" gap="xs" wrap="nowrap">
            <NumberInput
              label="Instances"
              min={0}
              max={10000}
              allowDecimal={false}
              value={n}
              onChange={setN}
              w={120}
              data-autofocus
            />
            <Button type="submit" disabled={n === ""}>
              Apply
            </Button>
          </Group>
        </form>
      </Popover.Dropdown>
    </Popover>
  );
}

function Service({
  app,
  s,
  path,
  write,
  running,
}: {
  app: AppView;
  s: ServiceView;
  path: string;
  write: boolean;
  running: Instance[];
}) {
  const { client } = useSession();
  const { ask, act } = useActs();
  const rollout = (action: string, done: string) =>
    act(() => client.call("POST", path + "/rollout", { body: { action, service: s.name } }), done);
  const r = s.rollout;
  const going = r && r.phase !== "Done";
  return (
    <Panel
      title={s.name}
      actions={
        write && (
          <>
            {(s.mode === "service" || !s.mode) && <Scale path={path} s={s} />}
            <Button
              size="xs"
              variant="default"
              onClick={() =>
                ask({
                  title: `Restart ${s.name}?`,
                  text: "Its instances are replaced one at a time.",
                  action: "Restart",
                  run: () => client.call("POST", `${path}/services/${encodeURIComponent(s.name)}/restart`),
                  done: `${s.name} restarts`,
                })
              }
            >
              Restart
            </Button>
          </>
        )
      }
    >
      <Stack gap="sm">
        <Box>
          <Group justify="space-between">
            <Text size="sm">
              {s.ready} of {s.want} ready
              {s.instances !== s.want && `, ${s.instances} there`}
              {s.restarts > 0 && `, restarted ${s.restarts} times`}
            </Text>
            <Badge variant="default" tt="none">
              {s.mode}
            </Badge>
          </Group>
          <Progress
            value={s.want ? (100 * s.ready) / s.want : 100}
            aria-label={`${s.ready} of ${s.want} instances of ${s.name} are ready`}
            color={s.ready < s.want ? "orange" : undefined}
            mt={4}
          />
        </Box>
        {going && (
          <Alert
            variant="light"
            color={r.phase === "GoingBack" ? "orange" : "blue"}
            title={
              <Group gap="xs">
                Update <StateBadge state={r.phase} />
              </Group>
            }
          >
            <Text size="sm">
              {s.upToDate} of {s.want} instances have the new version
              {!r.sites && r.wave > 0 && `, wave ${r.wave}`}
              {r.sites && r.sites.all > 1 && `, done at ${r.sites.done} of ${r.sites.all} sites`}
              {r.sites?.away && `, ${r.sites.away} out of touch or in quarantine`}
              {r.failures ? `, ${r.failures} failures` : ""}.
            </Text>
            <Progress
              value={s.want ? (100 * s.upToDate) / s.want : 0}
              aria-label={`${s.upToDate} of ${s.want} instances of ${s.name} have the new version`}
              my={6}
            />
            {r.reason && <Text size="sm">{r.reason}</Text>}
            {write && (
              <Group gap="xs" mt="xs">
                {r.phase === "Paused" ? (
                  <Button size="xs" variant="default" onClick={() => rollout("resume", "The update continues")}>
                    Go on
                  </Button>
                ) : (
                  <Button size="xs" variant="default" onClick={() => rollout("pause", "The update is paused")}>
                    Pause
                  </Button>
                )}
                <Button
                  size="xs"
                  variant="default"
                  onClick={() => rollout("undo", "Rolling back to the previous version")}
                >
                  Undo
                </Button>
              </Group>
            )}
          </Alert>
        )}
        {r?.refused && (
          <Alert variant="light" color="red" title="The new version was rolled back">
            <Text size="sm">
              {clock(r.refused.at)}: {r.refused.reason}
            </Text>
          </Alert>
        )}
        {s.scale && (
          <Text size="sm">
            Follows the load, from {s.scale.min} to {s.scale.max}: {s.scale.why}
          </Text>
        )}
        <Table withRowBorders={false} verticalSpacing={2}>
          <Table.Tbody>
            {s.image && <Row name="Image" value={s.image} />}
            {s.qos && (
              <Row
                name="In use"
                value={`${cores(parseCPU(s.qos.cpu))} CPU, ${bytes(parseBytes(s.qos.memory))} memory`}
              />
            )}
            {s.addresses && (
              <>
                <Row name="Round robin" value={s.addresses.roundRobin} />
                <Row name="Closest" value={s.addresses.closest} />
                <Row name="Least loaded" value={s.addresses.leastLoaded} />
              </>
            )}
            {(s.ingress ?? []).map((i, n) => (
              <Row key={n} name="Ingress" value={<IngressLine of={i} />} />
            ))}
            {s.runs?.length ? (
              <Row
                name="Last run"
                value={`${s.runs.at(-1)!.result || "goes on"}, ${s.runs.at(-1)!.succeeded} succeeded, ${s.runs.at(-1)!.failed} failed`}
              />
            ) : null}
          </Table.Tbody>
        </Table>
        <Text size="sm">
          <A to={`/apps/${app.key.namespace}/${app.key.name}?tab=instances`}>Instances</A>
          {running.slice(0, 3).map((i, n) => (
            <span key={i.id}>
              {n === 0 ? " · Logs of " : ", "}
              <A to={`/instances/${encodeURIComponent(i.id)}?tab=logs`}>{i.id}</A>
            </span>
          ))}
          {running.length > 3 && ` and ${running.length - 3} more`}
        </Text>
      </Stack>
    </Panel>
  );
}

function Row({ name, value }: { name: string; value: ReactNode }) {
  return (
    <Table.Tr>
      <Table.Th fw={400} w={120}>
        {name}
      </Table.Th>
      <Table.Td className="mono" style={{ overflowWrap: "anywhere" }}>
        {value}
      </Table.Td>
    </Table.Tr>
  );
}

function Manifest({ path, generation }: { path: string; generation: number }) {
  const q = useReadApp<Version>(path + "/manifest", generation);
  return (
    <Loaded of={q}>
      {(v) => (
        <Suspense fallback={<Text>Loading …</Text>}>
          <Yaml label="Manifest" value={manifestText(v.manifest)} readOnly />
        </Suspense>
      )}
    </Loaded>
  );
}

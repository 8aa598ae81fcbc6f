import { Group, Select, Text, TextInput } from "@mantine/core";
import { useDeferredValue, useMemo } from "react";
import { useSearchParams } from "react-router-dom";
import { count } from "../format";
import { IconSearch } from "../icons";
import { Page, Panel } from "../parts/basics";
import { Folded, InstanceTable } from "../parts/instances";
import { instanceState } from "../parts/state";
import { useSession } from "../state/session";
import { useWatch } from "../state/watch";

/** Instances lists all instances that the user may see. */
export default function Instances() {
  const { client } = useSession();
  const fleet = useWatch(client, { kinds: ["instance"] });
  const [params, setParams] = useSearchParams();
  const get = (k: string) => params.get(k) ?? "";
  const set = (k: string, v: string | null) =>
    setParams(
      (p) => {
        if (v) p.set(k, v);
        else p.delete(k);
        return p;
      },
      { replace: true },
    );
  const text = useDeferredValue(get("q").trim().toLowerCase());
  const state = get("state");
  const all = useMemo(() => [...fleet.instances.values()].sort((a, b) => a.id.localeCompare(b.id)), [fleet.instances]);
  const states = useMemo(() => [...new Set(all.map(instanceState))].sort(), [all]);
  const shown = useMemo(
    () =>
      all.filter(
        (i) =>
          (!state || instanceState(i) === state) &&
          (!text ||
            `${i.id} ${i.service.app.name}/${i.service.service} ${i.cluster} ${i.worker ?? ""}`
              .toLowerCase()
              .includes(text)),
      ),
    [all, state, text],
  );
  return (
    <Page
      title="Instances"
      sub={
        <span role="status">
          {!fleet.synced
            ? "Loading …"
            : shown.length === all.length
              ? count(all.length, "instance")
              : `${shown.length.toLocaleString()} of ${count(all.length, "instance")}`}
        </span>
      }
    >
      <Group align="flex-end">
        <TextInput
          label="Search"
          description="Instance, service, cluster or worker"
          value={get("q")}
          onChange={(e) => set("q", e.currentTarget.value)}
          leftSection={<IconSearch size={16} aria-hidden />}
          w={{ base: "100%", xs: 300 }}
        />
        <Select
          label="State"
          data={states}
          value={state || null}
          placeholder="All"
          clearable
          clearButtonProps={{ "aria-label": "All states" }}
          onChange={(v) => set("state", v)}
        />
      </Group>
      {/* Who searches or asks for a state wants all that matches. */}
      <Folded list={shown} off={Boolean(text || state)}>
        {(some) => (
          <Panel pad={0}>
            {fleet.synced ? (
              <InstanceTable
                list={some}
                empty={
                  shown.length
                    ? "All instances are finished runs."
                    : all.length
                      ? "No instance matches."
                      : "There are no instances yet."
                }
              />
            ) : (
              <Text p="md">Loading …</Text>
            )}
          </Panel>
        )}
      </Folded>
    </Page>
  );
}

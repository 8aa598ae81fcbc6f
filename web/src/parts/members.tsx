import { Text } from "@mantine/core";
import { useMemo } from "react";
import type { Event, Instance } from "../api/types";
import { useSession } from "../state/session";
import { useWatch } from "../state/watch";
import { Panel } from "./basics";
import { Events } from "./events";
import { InstanceTable } from "./instances";

/** MemberInstances shows the instances at a cluster or worker as they change, and what happened there. */
export function MemberInstances({
  of,
  name,
  part,
}: {
  of: "cluster" | "worker";
  name: string;
  part: "instances" | "events";
}) {
  const { client } = useSession();
  const fleet = useWatch(client, part === "instances" ? { kinds: ["instance"] } : { kinds: ["app", "event"] });
  const list = useMemo(
    () =>
      [...fleet.instances.values()].filter((i: Instance) => i[of] === name).sort((a, b) => a.id.localeCompare(b.id)),
    [fleet.instances, of, name],
  );
  const events = useMemo(
    () => ({ past: fleet.past, events: fleet.events.filter((e: Event) => e[of] === name) }),
    [fleet.past, fleet.events, of, name],
  );
  if (part === "events")
    return (
      <Panel>
        <Events of={events} max={300} empty={`Nothing is known to have happened at this ${of} of late.`} />
      </Panel>
    );
  return (
    <Panel pad={0}>
      {fleet.synced ? (
        <InstanceTable list={list} empty={`No instance that you may see is at this ${of}.`} />
      ) : (
        <Text p="md">Loading …</Text>
      )}
    </Panel>
  );
}

import { Badge, Tooltip } from "@mantine/core";
import type { Instance } from "../api/types";
import { crashLoop } from "../state/trouble";

const colours: Record<string, string> = {
  Running: "teal",
  Ready: "teal",
  Connected: "teal",
  Completed: "teal",
  Done: "teal",
  Requested: "blue",
  ClusterScheduled: "blue",
  WorkerScheduled: "blue",
  Progressing: "blue",
  Canary: "blue",
  Upgrading: "blue",
  Watched: "blue",
  Waiting: "gray",
  Skipped: "gray",
  Aborted: "orange",
  Registered: "gray",
  Terminated: "gray",
  Stopped: "gray",
  Paused: "yellow",
  Cordoned: "yellow",
  Frozen: "yellow",
  "Takes nothing new": "yellow",
  Draining: "blue",
  Drained: "gray",
  Quarantined: "red",
  Degraded: "yellow",
  Disconnected: "orange",
  "Running, not ready": "yellow",
  GoingBack: "orange",
  RolledBack: "orange",
  CrashLoop: "red",
  Kept: "yellow",
  Orphan: "yellow",
  Failed: "red",
  Lost: "red",
};

/** StateBadge names a state; its colour says nothing that the word does not. */
export function StateBadge({ state, title }: { state: string; title?: string }) {
  const badge = (
    <Badge
      color={colours[state] ?? "gray"}
      variant="light"
      tt="none"
      radius="sm"
      styles={{ label: { overflow: "visible" } }}
    >
      {state}
    </Badge>
  );
  return title ? (
    <Tooltip label={title} multiline maw={360} withArrow>
      {badge}
    </Tooltip>
  ) : (
    badge
  );
}

export const ready = (i: Instance) => i.conditions?.some((c) => c.type === "Ready" && c.status) ?? false;

/** instanceState is the state with what matters more to people: that it runs and is not ready, or ends again and again. */
export function instanceState(i: Instance): string {
  if (i.stopping && i.state === "Running") return "Stopping";
  if (crashLoop(i) !== undefined) return "CrashLoop";
  if (i.state === "Running" && !ready(i)) return "Running, not ready";
  return i.state;
}

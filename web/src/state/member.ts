import type { ClusterView, CreditView, WorkerView } from "../api/types";

/** memberState tells how a cluster or worker stands, in the word that matters most: whether it is there, and then what keeps new work away. */
export function memberState(
  m: Pick<ClusterView, "connected" | "lost" | "credit"> &
    Partial<Pick<WorkerView, "held" | "drain" | "hold" | "refusing">>,
): string {
  if (m.lost) return "Lost";
  if (!m.connected) return "Disconnected";
  if (m.credit?.quarantine) return "Quarantined";
  if (m.held) return "Frozen";
  if (m.drain) return m.drain.done ? "Drained" : "Draining";
  if (m.hold) return "Cordoned";
  if (m.refusing) return "Takes nothing new";
  return "Connected";
}

/** trust tells in short what is thought of what a member says. */
export function trust(c: CreditView | undefined): string {
  if (!c) return "Trusted";
  if (c.quarantine) return "Quarantined: " + c.quarantine;
  return c.rank < 1 ? `Counts for ${Math.round(c.rank * 100)} %` : "Trusted";
}

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

/** memberWhy tells why a cluster or worker stands as memberState says; nothing where the word says it all. */
export function memberWhy(
  m: Parameters<typeof memberState>[0] & Partial<Pick<WorkerView, "verdict" | "cutOff">>,
): string {
  if (m.lost) return m.cutOff ? "another worker reaches it" : (m.verdict ?? "");
  if (!m.connected) return "";
  if (m.credit?.quarantine) return m.credit.quarantine;
  if (m.held) return m.held;
  if (m.drain) return m.drain.done ? "" : `${m.drain.left} still to leave`;
  return m.hold || m.refusing || "";
}

/** ails reports whether somebody should look at a cluster or worker; what an operator ordered needs nobody. */
export const ails = (m: Parameters<typeof memberState>[0]) =>
  ["Lost", "Disconnected", "Quarantined", "Frozen", "Takes nothing new"].includes(memberState(m));

/** trust tells in short what is thought of what a member says. */
export function trust(c: CreditView | undefined): string {
  if (!c) return "Trusted";
  if (c.quarantine) return "Quarantined: " + c.quarantine;
  return c.rank < 1 ? `Counts for ${Math.round(c.rank * 100)} %` : "Trusted";
}

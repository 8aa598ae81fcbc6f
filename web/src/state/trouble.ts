import type { AppView, Instance } from "../api/types";

/** trouble tells, service by service, what of an application does not run as it should; nothing if all does. */
export function trouble(a: AppView): string[] {
  if (!a.deployed || a.deleting) return [];
  const out: string[] = [];
  for (const s of a.services ?? []) {
    const r = s.rollout;
    // The server's reason says most of what follows in one line; it leaves out how many are ready.
    const counted = s.mode === "service" || s.mode === "perWorker" || s.mode === "perDevice";
    const few = counted && s.ready < s.want;
    if (s.reason) out.push(`${s.name}: ${few ? `${s.ready} of ${s.want} ready, ` : ""}${s.reason}`);
    if (s.reason && (few || /^(RolledBack|UpdateFailed|UpdateWaits)/.test(s.reason))) continue;
    if (r?.refused) out.push(`${s.name}: the new version was rolled back: ${r.refused.reason || "it failed"}`);
    else if (r && (r.phase === "GoingBack" || r.phase === "Paused") && r.reason)
      out.push(`${s.name}: ${r.phase === "Paused" ? "the update is paused" : "the update goes back"}: ${r.reason}`);
    if (counted) {
      if (few) out.push(`${s.name}: ${s.ready} of ${s.want} ready`);
    } else {
      const last = s.runs?.[s.runs.length - 1];
      if (last?.result === "Failed") out.push(`${s.name}: the last run failed${last.reason ? ": " + last.reason : ""}`);
    }
  }
  if (out.length === 0 && (a.status === "Degraded" || a.status === "RolledBack"))
    out.push(a.reason || "not all of it is as its manifest says");
  return out;
}

/** crashLoop tells why an instance ends again and again soon after its start; nothing if it does not. */
export const crashLoop = (i: Instance) => i.conditions?.find((c) => c.type === "CrashLoop" && c.status)?.reason;

/** whyNot tells why an instance does not run, in the words of whoever decided; empty if it does. */
export function whyNot(i: Instance): string {
  const loop = crashLoop(i);
  if (loop !== undefined) return loop;
  if (i.state === "Running" || i.state === "Terminated") return i.reason ?? "";
  const why = i.why?.map((r) => r.text + (r.hint ? ` (${r.hint})` : "")).join("; ");
  return [i.reason, why].filter(Boolean).join(": ");
}

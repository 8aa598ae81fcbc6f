import type { AppView, Instance } from "../api/types";

/** trouble tells, service by service, what of an application does not run as it should; nothing if all does. */
export function trouble(a: AppView): string[] {
  if (!a.deployed || a.deleting) return [];
  const out: string[] = [];
  for (const s of a.services ?? []) {
    const r = s.rollout;
    if (r?.refused) out.push(`${s.name}: the new version was rolled back: ${r.refused.reason || "it failed"}`);
    else if (r && (r.phase === "GoingBack" || r.phase === "Paused") && r.reason)
      out.push(`${s.name}: ${r.phase === "Paused" ? "the update is paused" : "the update goes back"}: ${r.reason}`);
    if (s.mode === "service" || s.mode === "perWorker") {
      if (s.ready < s.want) out.push(`${s.name}: ${s.ready} of ${s.want} ready`);
    } else {
      const last = s.runs?.[s.runs.length - 1];
      if (last?.result === "Failed") out.push(`${s.name}: the last run failed${last.reason ? ": " + last.reason : ""}`);
    }
  }
  return out;
}

/** whyNot tells why an instance does not run, in the words of whoever decided; empty if it does. */
export function whyNot(i: Instance): string {
  if (i.state === "Running" || i.state === "Terminated") return i.reason ?? "";
  const why = i.why?.map((r) => r.text + (r.hint ? ` (${r.hint})` : "")).join("; ");
  return [i.reason, why].filter(Boolean).join(": ");
}

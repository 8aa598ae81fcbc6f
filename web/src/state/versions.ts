import type { AppView } from "../api/types";

export type Version = NonNullable<AppView["revisions"]>[number];

/** previous gives the version that another one was made from, among those that are listed with the newest first. */
export const previous = (version: Version, list: Version[]) =>
  list.find((v) => !v.site && (version.site ? v.generation === version.generation : v.generation < version.generation));

/** changes tells what a version has that the one before it had not; nothing without one before. */
export function changes(version: Version, before: Version | undefined): string[] {
  if (!before) return [];
  const old = new Map((before.services ?? []).map((s) => [s.name, s]));
  const out: string[] = [];
  for (const s of version.services ?? []) {
    const was = old.get(s.name);
    old.delete(s.name);
    if (!was) out.push(`${s.name} is new`);
    else if (was.image !== s.image) out.push(`${s.name}: ${was.image || "no image"} → ${s.image || "no image"}`);
    else if (was.revision !== s.revision) out.push(`${s.name}: other settings, the same image`);
  }
  for (const name of old.keys()) out.push(`${name} is gone`);
  return out;
}

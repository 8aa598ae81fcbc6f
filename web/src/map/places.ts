import type { ClusterView, Instance, Location, WorkerView } from "../api/types";
import { ready } from "../parts/state";
import { memberState } from "../state/member";
import { milliseconds, reach } from "./geometry";

/** Mark is a cluster or worker, on the map if it says where it is. */
export interface Mark {
  name: string;
  to: string;
  state: string;
  location?: Location;
  radiusKm: number;
  areas: string[];
  instances: number;
}

export function clusterMarks(list: readonly ClusterView[]): Mark[] {
  return list.map((c) => ({
    name: c.name,
    to: "/clusters/" + encodeURIComponent(c.name),
    state: memberState(c),
    location: c.report.centroid,
    radiusKm: c.report.radiusKm ?? 0,
    areas: c.report.areas ?? [],
    instances: c.instances,
  }));
}

export function workerMarks(list: readonly WorkerView[]): Mark[] {
  return list.map((w) => ({
    name: w.name,
    to: "/workers/" + encodeURIComponent(w.name),
    state: memberState(w),
    location: w.facts?.location,
    radiusKm: 0,
    areas: w.facts?.area ? [w.facts.area] : [],
    instances: w.instances,
  }));
}

export interface Held {
  there: number;
  ready: number;
  /** services are those that have instances there, with how many. */
  services: Map<string, number>;
}

/** holders counts the instances of an application by the cluster or worker that holds them; those without a place count for "". */
export function holders(list: Iterable<Instance>, by: "cluster" | "worker"): Map<string, Held> {
  const out = new Map<string, Held>();
  for (const i of list) {
    if (i.state === "Terminated" || i.state === "Completed") continue;
    const where = i[by] ?? "";
    let h = out.get(where);
    if (!h) {
      h = { there: 0, ready: 0, services: new Map() };
      out.set(where, h);
    }
    h.there++;
    if (ready(i)) h.ready++;
    h.services.set(i.service.service, (h.services.get(i.service.service) ?? 0) + 1);
  }
  return out;
}

/** Near is a limit of how far a service may be from a user or a place. */
export interface Near {
  service: string;
  kind: "distance" | "latency";
  /** limit is as the manifest has it: 20ms, or 400 km. */
  limit: string;
  km: number;
  /** location is where the circle's middle is; unknown of a user who has an address alone. */
  location?: Location;
  whom: string;
}

interface User {
  location?: Location;
  maxDistance?: number;
  address?: string;
  maxLatency?: string;
}

/** Limits is what of a manifest matters here. */
export interface Limits {
  spec?: {
    services?: {
      name?: string;
      placement?: { location?: Location; maxDistance?: number; maxLatency?: string; users?: User[] };
    }[];
  };
}

/** limits lists what the services of an application ask for of their distance to users and places. */
export function limits(manifest: Limits | undefined): Near[] {
  const out: Near[] = [];
  for (const s of manifest?.spec?.services ?? []) {
    const p = s.placement;
    const service = s.name ?? "";
    if (p?.location && p.maxDistance)
      out.push({
        service,
        kind: "distance",
        limit: `${p.maxDistance} km`,
        km: p.maxDistance,
        location: p.location,
        whom: "its place",
      });
    (p?.users ?? []).forEach((u, n) => {
      const whom = u.address ?? `user ${n + 1}`;
      if (u.location && u.maxDistance)
        out.push({
          service,
          kind: "distance",
          limit: `${u.maxDistance} km`,
          km: u.maxDistance,
          location: u.location,
          whom,
        });
      const latency = u.maxLatency ?? (u.address ? p?.maxLatency : undefined);
      const ms = milliseconds(latency);
      if (ms !== undefined)
        out.push({ service, kind: "latency", limit: latency!, km: reach(ms), location: u.location, whom });
    });
  }
  return out;
}

/** visible tells what of the map a user gets: places need the right to see clusters or workers, services that to see applications. */
export function visible(
  role: string | undefined,
  can: (scope: string) => boolean,
): { clusters: boolean; workers: boolean; apps: boolean } {
  return {
    clusters: role === "root" && can("clusters:read"),
    workers: role === "cluster" && can("workers:read"),
    apps: can("apps:read"),
  };
}

import { expect, test } from "vitest";
import type { ClusterView, Instance, WorkerView } from "../api/types";
import { clusterMarks, holders, limits, visible, workerMarks } from "./places";

test("who may see what", () => {
  const of =
    (...scopes: string[]) =>
    (s: string) =>
      scopes.includes(s);
  expect(visible("root", of("clusters:read", "apps:read", "workers:read"))).toEqual({
    clusters: true,
    workers: false,
    apps: true,
  });
  expect(visible("cluster", of("clusters:read", "apps:read", "workers:read"))).toEqual({
    clusters: false,
    workers: true,
    apps: true,
  });
  expect(visible("root", of("apps:read"))).toEqual({ clusters: false, workers: false, apps: true });
  expect(visible(undefined, of())).toEqual({ clusters: false, workers: false, apps: false });
});

test("clusters and workers become marks, with or without a place", () => {
  const c = [
    {
      name: "a",
      connected: true,
      instances: 3,
      report: { centroid: { lat: 1, lon: 2 }, radiusKm: 40, areas: ["pier"], instances: 3, seq: 1 },
    },
    { name: "b", connected: false, lost: true, instances: 0, report: { instances: 0, seq: 1 } },
  ] as ClusterView[];
  expect(clusterMarks(c)).toMatchObject([
    { name: "a", state: "Connected", location: { lat: 1, lon: 2 }, radiusKm: 40, areas: ["pier"], to: "/clusters/a" },
    { name: "b", state: "Lost", location: undefined, areas: [] },
  ]);
  const w = [
    { name: "w", connected: true, hold: "disk", instances: 1, facts: { area: "quay", location: { lat: 5, lon: 6 } } },
  ] as unknown as WorkerView[];
  expect(workerMarks(w)).toMatchObject([
    { name: "w", state: "Cordoned", location: { lat: 5, lon: 6 }, areas: ["quay"], to: "/workers/w" },
  ]);
});

test("instances are counted where they are", () => {
  const i = (cluster: string | undefined, service: string, state = "Running", ok = true) =>
    ({ cluster, state, service: { service }, conditions: [{ type: "Ready", status: ok }] }) as unknown as Instance;
  const h = holders(
    [
      i("a", "web"),
      i("a", "db", "Running", false),
      i("b", "web"),
      i(undefined, "web", "Requested", false),
      i("a", "web", "Terminated"),
    ],
    "cluster",
  );
  expect(h.get("a")).toEqual({
    there: 2,
    ready: 1,
    services: new Map([
      ["web", 1],
      ["db", 1],
    ]),
  });
  expect(h.get("b")!.there).toBe(1);
  expect(h.get("")!.there).toBe(1);
});

test("limits of users become circles, a latency by the way of light", () => {
  const location = { lat: 53.5, lon: 10 };
  expect(
    limits({
      spec: {
        services: [
          {
            name: "web",
            placement: {
              location,
              maxDistance: 900,
              maxLatency: "40ms",
              users: [
                { location, maxDistance: 400 },
                { location, address: "192.0.2.9", maxLatency: "20ms" },
                { address: "192.0.2.10" },
              ],
            },
          },
          { name: "db" },
        ],
      },
    }),
  ).toEqual([
    { service: "web", kind: "distance", limit: "900 km", km: 900, location, whom: "its place" },
    { service: "web", kind: "distance", limit: "400 km", km: 400, location, whom: "user 1" },
    { service: "web", kind: "latency", limit: "20ms", km: 2000, location, whom: "192.0.2.9" },
    { service: "web", kind: "latency", limit: "40ms", km: 4000, location: undefined, whom: "192.0.2.10" },
  ]);
  expect(limits(undefined)).toEqual([]);
});

import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { asUser } from "../test-session";
import ClusterPage from "./cluster";
import WorldPage from "./map";
import WorkerPage from "./worker";
import Workers from "./workers";

const pier = {
  name: "pier",
  connected: false,
  instances: 2,
  credit: {
    rank: 0.4,
    quarantine: "it told of room that was not there",
    marks: [
      {
        kind: "capacity",
        text: "3 of 4 instances found no room",
        marks: 3,
        last: "2026-01-01T00:00:00Z",
        against: 2.5,
      },
    ],
  },
  report: {
    seq: 1,
    instances: 2,
    areas: ["north"],
    centroid: { lat: 54, lon: 10 },
    radiusKm: 30,
    classes: [
      {
        class: { arch: "riscv64", runtimes: ["oci"] },
        workers: 3,
        available: Array.from({ length: 10 }, () => ({ mean: 1024, stddev: 0, sum: 6000 })),
      },
    ],
  },
};
const worker = {
  name: "w1",
  connected: true,
  instances: 1,
  hold: "drained",
  drain: {
    since: "2026-01-01T00:00:00Z",
    parallel: 1,
    left: 1,
    moving: 0,
    ending: 0,
    stays: [{ instance: "db-0", reason: "its volume is here" }],
  },
  reserved: {},
  available: {},
  used: {},
  facts: {
    arch: "arm64",
    os: "linux",
    capacity: { cpu: 4, memory: "8Gi" },
    runtimes: [
      {
        name: "oci",
        passed: true,
        profile: { cpu: 1, at: "2026-01-01T00:00:00Z", rate: 8123.4, share: 0.97, spread: 0.61 },
      },
      { name: "native", passed: true, profile: { cpu: 0.9, at: "2026-01-01T00:00:00Z" } },
      { name: "vm", passed: false, cause: "no KVM", cure: "load kvm" },
    ],
  },
};
const overlay = {
  handling: "ebpf",
  services: 2,
  flows: 1,
  flowsMax: 100,
  peers: [
    {
      peer: 2,
      name: "w2",
      path: "relay",
      reason: "no direct way",
      rttMs: 12.345,
      loss: 0.01,
      rxBytes: 2048,
      txBytes: 1024,
    },
  ],
};

test("who administers clusters may believe and remove them; others may look", async () => {
  const o = {
    role: "root" as const,
    at: "/clusters/pier",
    route: "/clusters/:name",
    answers: { "/v1/clusters/pier": pier },
  };
  const { calls } = asUser(<ClusterPage />, { ...o, scopes: ["clusters:read", "clusters:admin"] });
  await userEvent.click(await screen.findByRole("button", { name: "Trust again" }));
  expect(calls).not.toContain("PUT /v1/clusters/pier/trust"); // it is asked first
  await userEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Trust it" }));
  expect(calls).toContain("PUT /v1/clusters/pier/trust");
  expect(screen.getByRole("button", { name: "Remove" })).toBeTruthy();
  expect(screen.getByText("riscv64")).toBeTruthy();
  expect(screen.getByText(/3 of 4 instances found no room/)).toBeTruthy();
});

test("without the right to it nothing can be done with a cluster", async () => {
  asUser(<ClusterPage />, {
    role: "root",
    at: "/clusters/pier",
    route: "/clusters/:name",
    answers: { "/v1/clusters/pier": pier },
    scopes: ["clusters:read"],
  });
  expect(await screen.findByRole("heading", { name: "pier" })).toBeTruthy();
  for (const name of ["Trust again", "Remove"]) expect(screen.queryByRole("button", { name })).toBeNull();
});

test("a worker shows its drain, its runtimes and its paths", async () => {
  const { calls } = asUser(<WorkerPage />, {
    role: "cluster",
    at: "/workers/w1",
    route: "/workers/:name",
    answers: { "/v1/workers/w1": worker, "/v1/workers/w1/overlay": overlay },
    scopes: ["workers:read", "workers:write"],
  });
  expect(await screen.findByText("its volume is here")).toBeTruthy();
  expect(screen.getByRole("button", { name: "End the drain" })).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Remove" })).toBeNull();
  expect(calls).not.toContain("GET /v1/workers/w1/overlay"); // the worker is asked only when somebody looks
  await userEvent.click(screen.getByRole("tab", { name: "Runtimes" }));
  expect(await screen.findByText("does not work")).toBeTruthy();
  expect(screen.getByText("load kvm")).toBeTruthy();
  expect(screen.getByText("× 1.00")).toBeTruthy();
  expect(screen.getByText((8120).toLocaleString() + " /s")).toBeTruthy();
  expect(screen.getByText("97 % of a processor given")).toBeTruthy();
  expect(screen.getByText("61 % apart: too far to count")).toBeTruthy();
  expect(screen.getByText("not measured")).toBeTruthy(); // of an older worker, which told no rate
  expect(screen.getByText(/does not count in placement/)).toBeTruthy();
  await userEvent.click(screen.getByRole("tab", { name: "Overlay" }));
  expect(await screen.findByText("sealed, by a relay")).toBeTruthy();
  expect(screen.getByText("12.35 ms")).toBeTruthy();
  expect(screen.getByText("no direct way")).toBeTruthy();
});

test("the root asks nobody about workers", async () => {
  const { calls } = asUser(<Workers />, {
    role: "root",
    at: "/workers",
    route: "/workers",
    answers: {},
    scopes: ["workers:read"],
  });
  expect(await screen.findByText(/each cluster shows its workers/)).toBeTruthy();
  expect(calls).not.toContain("GET /v1/workers");
});

const app = {
  key: { namespace: "default", name: "tide" },
  generation: 1,
  services: [],
  deployed: true,
  status: "Ready",
};
const watch = [
  { type: "set", kind: "app", app },
  {
    type: "set",
    kind: "instance",
    instance: {
      id: "gauge-1",
      state: "Running",
      cluster: "pier",
      service: { app: app.key, service: "gauge" },
      conditions: [{ type: "Ready", status: true }],
    },
  },
];
const full = {
  ...app,
  manifest: {
    spec: {
      services: [
        {
          name: "gauge",
          placement: { users: [{ location: { lat: 53, lon: 9 }, address: "192.0.2.1", maxLatency: "5ms" }] },
        },
      ],
    },
  },
};
const answers = { "/v1/clusters": { items: [pier] }, "/v1/apps/default/tide": full };

test("the map tells an operator in words where clusters are and what they hold", async () => {
  asUser(<WorldPage />, {
    role: "root",
    at: "/map?app=default/tide",
    route: "/map",
    answers,
    watch,
    scopes: ["clusters:read", "apps:read"],
  });
  const table = await screen.findByRole("region", { name: "Clusters" });
  await waitFor(() => expect(within(table).getByText("1 of 1 ready")).toBeTruthy());
  expect(within(table).getByRole("link", { name: "pier" })).toBeTruthy();
  expect(within(table).getByText("54.00° N, 10.00° E")).toBeTruthy();
  expect(
    within(await screen.findByRole("region", { name: "Near to users and places" })).getByText("500 km"),
  ).toBeTruthy();
  expect(screen.getByText(/about 100 km for each millisecond/)).toBeTruthy();
});

test("a developer sees on the map what an application asks for, and asks not where clusters are", async () => {
  const { calls } = asUser(<WorldPage />, {
    role: "root",
    at: "/map?app=default/tide",
    route: "/map",
    answers,
    watch,
    scopes: ["apps:read"],
  });
  expect(await screen.findByText("1 of 1 ready")).toBeTruthy();
  expect(screen.queryByRole("link", { name: "pier" })).toBeNull();
  expect(calls).not.toContain("GET /v1/clusters");
});

test("what an application asks for of the map, and cannot be read, is not shown as nothing", async () => {
  asUser(<WorldPage />, {
    role: "root",
    at: "/map?app=default/tide",
    route: "/map",
    answers: {},
    watch,
    scopes: ["apps:read"],
  });
  expect(await screen.findByText("there is no /v1/apps/default/tide", {}, { timeout: 20_000 })).toBeTruthy();
});

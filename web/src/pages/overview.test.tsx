import { screen } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { forgetWatches } from "../state/watch";
import { asUser } from "../test-session";
import { Overview } from "./overview";

beforeEach(forgetWatches);

const patience = { timeout: 20_000 };

const worker = (name: string, more: object) => ({
  name,
  connected: true,
  instances: 0,
  reserved: {},
  available: {},
  used: {},
  since: "2026-01-01T00:00:00Z",
  ...more,
});
const app = (name: string, more: object) => ({
  type: "set",
  kind: "app",
  key: { namespace: "default", name },
  app: {
    key: { namespace: "default", name },
    deployed: true,
    generation: 1,
    status: "Ready",
    services: [{ name: "web", mode: "service", want: 2, ready: 2, instances: 2, restarts: 0 }],
    ...more,
  },
});

const shown = (workers: unknown[], watch: unknown[]) =>
  asUser(<Overview />, {
    role: "cluster",
    at: "/",
    route: "/",
    answers: { "/v1/workers": { items: workers } },
    scopes: ["apps:read", "workers:read"],
    watch,
  });

test("a degraded application and a lost worker need attention, each with its reason", async () => {
  shown(
    [worker("w1", {}), worker("w2", { connected: false, lost: true, verdict: "no worker reaches it" })],
    [app("shop", {}), app("tide", { status: "Degraded", reason: "the update waits for room" })],
  );
  expect(await screen.findByText("no worker reaches it")).toBeTruthy();
  expect(await screen.findByText(/the update waits for room/, {}, patience)).toBeTruthy();
  expect(screen.queryByText("Everything runs as it should.")).toBeNull();
  expect(screen.getByText("need attention").previousSibling?.textContent).toBe("2");
});

test("where all is well, that is said", async () => {
  shown([worker("w1", {})], [app("shop", {})]);
  expect(await screen.findByText("Everything runs as it should.", {}, patience)).toBeTruthy();
});

test("while nobody knows of the workers, not everything runs", async () => {
  asUser(<Overview />, {
    role: "cluster",
    at: "/",
    route: "/",
    answers: {},
    scopes: ["apps:read", "workers:read"],
    watch: [app("shop", {})],
  });
  expect(await screen.findByText("2 / 2", {}, patience)).toBeTruthy();
  expect(await screen.findByText(/It is not known how the workers are/)).toBeTruthy();
  expect(screen.getByText("need attention").previousSibling?.textContent).toBe("–");
  expect(screen.queryByText("Everything runs as it should.")).toBeNull();
});

test("an application that needs attention is counted while nobody knows of the workers", async () => {
  asUser(<Overview />, {
    role: "cluster",
    at: "/",
    route: "/",
    answers: {},
    scopes: ["apps:read", "workers:read"],
    watch: [app("tide", { status: "Degraded", reason: "the update waits for room" })],
  });
  expect(await screen.findByText(/the update waits for room/, {}, patience)).toBeTruthy();
  expect(await screen.findByText(/It is not known how the workers are/)).toBeTruthy();
  expect(screen.getByText("need attention").previousSibling?.textContent).toBe("1 or more");
});

test("before anything is known, nothing is counted", async () => {
  const never = { open: async () => new Promise<Response>(() => {}) };
  asUser(<Overview />, {
    role: "cluster",
    at: "/",
    route: "/",
    answers: { "/v1/workers": { items: [worker("w1", {})] } },
    scopes: ["apps:read", "workers:read"],
    client: never,
  });
  expect(await screen.findByText("instances ready / wanted")).toBeTruthy();
  expect(screen.getByText("instances ready / wanted").previousSibling?.textContent).toBe("–");
  expect(screen.getByText("applications").previousSibling?.textContent).toBe("–");
});

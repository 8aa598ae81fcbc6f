import { screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { asUser } from "../test-session";
import HistoryOf, { about, past } from "./history";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"], now: Date.UTC(2026, 0, 1, 12, 35) });
});
afterEach(() => {
  vi.useRealTimers();
});

const point = (minute: number, more: object) => ({
  at: new Date(Date.UTC(2026, 0, 1, 12, minute)).toISOString(),
  cpu: 0.5,
  memory: "512Mi",
  storage: "4Gi",
  instances: 3,
  workers: 1,
  ...more,
});

test("a step in which nothing was read is a gap, and not a nothing", () => {
  const list = past([point(0, {}), point(10, {}), point(40, { cpu: 2, rttMs: 4.2 })], 10);
  expect(list.map((p) => p.cpu)).toEqual([0.5, 0.5, undefined, undefined, 2]);
  expect(list[4]!.memory).toBe(512 * 1024 * 1024);
  expect(about(list, "cpu", String)).toMatch(/^Last: 2, most: 2 at /);
  expect(about(list, "rtt", String)).toMatch(/^Last: 4.2/);
  expect(about(list.slice(2, 4), "cpu", String)).toBe("Not known");
  expect(past([], 10)).toEqual([]);
});

test("what has not been heard of for hours is not of now", () => {
  const now = Date.UTC(2026, 0, 1, 14, 55);
  const list = past([point(0, {}), point(10, { rttMs: 3 })], 10, now);
  expect(list.length).toBe(17); // until 14:40: that of 14:50 may still come
  expect(list.at(-1)!.cpu).toBeUndefined();
  expect(about(list, "cpu", String)).toMatch(/^Last known: 0.5 at .+, most: 0.5 at /);
  expect(past([point(0, {})], 10, now * 2).length).toBe(145); // a clock that is wrong
  expect(past([], 10, now)).toEqual([]);
});

test("a worker that is away is shown as not known until now", async () => {
  vi.setSystemTime(Date.UTC(2026, 0, 1, 15, 0));
  shown({
    stepMinutes: 10,
    series: [{ worker: "w1", capacity: { cpu: 4 }, points: [point(0, {}), point(10, {})] }],
  });
  expect(await screen.findByText(/Of 150 minutes nothing is known/)).toBeTruthy();
  expect(screen.getByText(/^Last known: 512 MiB at /)).toBeTruthy();
});

const shown = (answer: unknown) =>
  asUser(<HistoryOf worker="w1" />, {
    role: "cluster",
    at: "/",
    route: "/",
    answers: { "/v1/workers/w1/history": answer },
    scopes: ["workers:read"],
  });

test("the day is there in words and as a table, for who sees no drawing", async () => {
  shown({
    stepMinutes: 10,
    series: [
      {
        worker: "w1",
        capacity: { cpu: 4, memory: "8Gi" },
        points: [point(0, {}), point(20, { restarts: 2, instances: 1 })],
      },
    ],
  });
  expect(await screen.findByRole("table", { name: "Memory, hour by hour" })).toBeTruthy();
  expect(screen.getByText("2 restarts of instances in all")).toBeTruthy();
  expect(screen.getByText(/^Last: 1, fewest: 1 at /)).toBeTruthy();
  expect(screen.getByText(/Of 10 minutes nothing is known/)).toBeTruthy();
  expect(screen.getByText(/limit 8.0 GiB/)).toBeTruthy();
  expect(screen.queryByRole("table", { name: /Round trip/ })).toBeNull();
});

test("a worker of which nothing is known yet says so", async () => {
  shown({ stepMinutes: 10, series: [{ worker: "w1", capacity: {}, points: [] }] });
  expect(await screen.findByText(/Nothing is known of it yet/)).toBeTruthy();
});

test("a site's history tells how many workers its sums are of", async () => {
  asUser(<HistoryOf />, {
    role: "cluster",
    at: "/",
    route: "/",
    answers: {
      "/v1/history": {
        stepMinutes: 10,
        series: [{ capacity: {}, points: [point(10, { workers: 6 }), point(20, { workers: 4 })] }],
      },
    },
    scopes: ["workers:read"],
  });
  expect(await screen.findByRole("table", { name: "Workers, hour by hour" })).toBeTruthy();
  expect(screen.getByText(/^Last: 4, fewest: 4 at /)).toBeTruthy();
});

import { expect, test } from "vitest";
import type { AppView, Instance, ServiceView } from "../api/types";
import { crashLoop, trouble, whyNot } from "./trouble";

const app = (s: Partial<ServiceView>, a: Partial<AppView> = {}) =>
  ({
    key: { namespace: "default", name: "tide" },
    deployed: true,
    services: [{ name: "gauge", mode: "service", want: 2, ready: 2, upToDate: 2, instances: 2, restarts: 0, ...s }],
    ...a,
  }) as AppView;

test("what does not run as it should is told, and nothing else", () => {
  expect(trouble(app({}))).toEqual([]);
  expect(trouble(app({ ready: 1 }))).toEqual(["gauge: 1 of 2 ready"]);
  expect(trouble(app({ ready: 0 }, { deployed: false }))).toEqual([]);
  expect(trouble(app({ ready: 0 }, { deleting: true }))).toEqual([]);
  expect(trouble(app({ ready: 1, reason: "NoPlace: no worker has enough memory" }))).toEqual([
    "gauge: 1 of 2 ready, NoPlace: no worker has enough memory",
  ]);
  expect(trouble(app({ reason: "UpdateWaits: the new version has no place" }))).toEqual([
    "gauge: UpdateWaits: the new version has no place",
  ]);
  expect(trouble(app({}, { status: "Degraded" }))).toHaveLength(1);
  const rollout = {
    phase: "Done",
    revision: "a",
    generation: 2,
    startedAt: "",
    wave: 1,
    refused: { at: "", reason: "failed 2 times", revision: "b" },
  } as ServiceView["rollout"];
  expect(trouble(app({ rollout }))).toEqual(["gauge: the new version was rolled back: failed 2 times"]);
  expect(
    trouble(
      app({
        mode: "job",
        ready: 0,
        runs: [{ id: "1", startedAt: "", succeeded: 0, failed: 1, result: "Failed", reason: "status 3" }],
      }),
    ),
  ).toEqual(["gauge: the last run failed: status 3"]);
});

test("an instance that has no place says why, with what would help", () => {
  expect(
    whyNot({
      state: "Requested",
      reason: "no place",
      why: [{ what: "cpu", text: "2 of 2 sites have too little cpu", hint: "ask for less" }],
    } as Instance),
  ).toBe("no place: 2 of 2 sites have too little cpu (ask for less)");
  expect(whyNot({ state: "Running" } as Instance)).toBe("");
  const loops = {
    state: "Running",
    conditions: [
      { type: "Ready", status: true },
      { type: "CrashLoop", status: true, reason: "restarted 3 times in a row: ended with status 7" },
    ],
  } as Instance;
  expect(whyNot(loops)).toBe("restarted 3 times in a row: ended with status 7");
  expect(crashLoop({ state: "Running" } as Instance)).toBeUndefined();
});

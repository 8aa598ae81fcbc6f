import { expect, it } from "vitest";
import { newestFirst } from "./audit";

it("shows the newest records that match", () => {
  const r = (seq: number, user: string, operation: string) => ({
    seq,
    user,
    operation,
    at: "2026-01-01T00:00:00Z",
    result: "ok",
    address: "10.0.0.1",
  });
  const list = [r(1, "ann", "login"), r(2, "ben", "apply-app"), r(3, "ann", "apply-app")];
  expect(newestFirst(list, "").map((x) => x.seq)).toEqual([3, 2, 1]);
  expect(newestFirst(list, " ANN").map((x) => x.seq)).toEqual([3, 1]);
  expect(newestFirst(list, "apply").map((x) => x.seq)).toEqual([3, 2]);
  expect(newestFirst(list, "10.9")).toEqual([]);
});

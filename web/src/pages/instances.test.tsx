import { screen } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { forgetWatches } from "../state/watch";
import { asUser } from "../test-session";
import Instances from "./instances";

beforeEach(forgetWatches);

const patience = { timeout: 20_000 };

test("where all instances are finished runs, that is said, and not that there are none or none that match", async () => {
  asUser(<Instances />, {
    role: "cluster",
    at: "/instances",
    route: "/instances",
    answers: {},
    scopes: ["apps:read"],
    watch: [
      {
        type: "set",
        kind: "instance",
        id: "beat-1",
        instance: {
          id: "beat-1",
          service: { app: { namespace: "default", name: "beat" }, service: "run" },
          state: "Terminated",
          restarts: 0,
          createdAt: "2026-01-01T00:00:00Z",
        },
      },
    ],
  });
  expect(await screen.findByText("All instances are finished runs.", {}, patience)).toBeTruthy();
  expect(screen.queryByText("No instance matches.")).toBeNull();
});

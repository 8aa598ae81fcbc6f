import { screen, waitFor } from "@testing-library/react";
import { expect, test } from "vitest";
import { ApiError } from "../api/client";
import { asUser } from "../test-session";
import Build from "./build";

/** lost answers only from the second time on, as over a link that has just failed. */
function lost<T>(answer: T) {
  let times = 0;
  return () => {
    if (times++ === 0) throw new ApiError(0, { code: "Unreachable", detail: "the server cannot be reached" });
    return answer;
  };
}

test("what did not reach the server is asked again, without a hand", async () => {
  const { calls } = asUser(<Build />, {
    role: "root",
    scopes: ["apps.read", "apps.write"],
    at: "/build",
    route: "/build",
    answers: {
      "/schema/application.json": lost({ type: "object", properties: {}, $defs: { ServiceSpec: { type: "object" } } }),
      "/v1/namespaces": { items: [] },
      "/v1/plan": lost({ instances: [], services: [] }),
    },
  });
  await screen.findByText("the server cannot be reached");
  const button = await screen.findByRole<HTMLButtonElement>("button", { name: "Plan and apply" }, { timeout: 5000 });
  expect(button.disabled).toBe(true);
  await waitFor(() => expect(button.disabled).toBe(false), { timeout: 8000 });
  for (const path of ["GET /schema/application.json", "POST /v1/plan"])
    expect(calls.filter((c) => c === path)).toHaveLength(2);
}, 20_000);

import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { ApiError } from "../api/client";
import { asUser } from "../test-session";
import Build from "./build";

const schema = {
  type: "object",
  properties: {},
  $defs: {
    ServiceSpec: {
      type: "object",
      properties: { name: { type: "string" }, image: { type: "string" }, replicas: { type: "integer" } },
    },
    Metadata: { type: "object", required: ["name"], properties: { name: { type: "string" } } },
  },
};

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
      "/schema/application.json": lost(schema),
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

test("a new application begins with one service, its image and its port, and no reproach", async () => {
  const user = userEvent.setup();
  const refuse = () => {
    throw new ApiError(422, {
      code: "invalid",
      detail: "the manifest is not valid",
      problems: [{ path: "spec.services[0].image", message: "an image is needed" }],
    });
  };
  const texts: string[] = [];
  asUser(<Build />, {
    role: "root",
    scopes: ["apps.read", "apps.write"],
    at: "/build",
    route: "/build",
    answers: { "/schema/application.json": schema, "/v1/namespaces": { items: [] }, "/v1/plan": refuse },
    sent: texts,
  });
  expect(await screen.findByText("Name it, and say which image it runs", {}, { timeout: 5000 })).toBeTruthy();
  expect(screen.queryByText("an image is needed")).toBeNull();
  expect(screen.queryByRole("tab", { name: "Application" })).toBeNull();
  await user.type(screen.getByRole("textbox", { name: /^Image/ }), "my/web:1");
  await user.type(screen.getByRole("textbox", { name: /^Port/ }), "8080");
  await waitFor(() => expect(texts.at(-1)).toContain("image: my/web:1\n"), { timeout: 8000 });
  await waitFor(() => expect(texts.at(-1)).toContain("ports:\n        - port: 8080\n"), { timeout: 8000 });
  expect(await screen.findAllByText(/an image is needed/)).not.toHaveLength(0);
  await user.click(screen.getByRole("button", { name: "All fields" }));
  expect(await screen.findByRole("tab", { name: "Application" })).toBeTruthy();
}, 30_000);

test("an application is edited as it was written", async () => {
  const texts: string[] = [];
  const args = ["one\ntwo\n"];
  asUser(<Build />, {
    role: "root",
    scopes: ["apps.read", "apps.write"],
    at: "/build/default/notes",
    route: "/build/:namespace/:app",
    answers: {
      "/schema/application.json": schema,
      "/v1/namespaces": { items: [] },
      "/v1/apps/default/notes/manifest": {
        generation: 3,
        manifest: { metadata: { name: "notes" }, spec: { services: [{ name: "web", args, security: {} }] } },
      },
      "/v1/plan": { instances: [], services: [] },
    },
    sent: texts,
  });
  expect(await screen.findByRole("tab", { name: "Application" })).toBeTruthy();
  await waitFor(
    () =>
      expect(texts.at(-1)).toBe(
        "metadata:\n  name: notes\nspec:\n  services:\n  - name: web\n    args:\n    - |\n      one\n      two\n",
      ),
    { timeout: 8000 },
  );
}, 20_000);

test("a manifest with several services is drawn at once", async () => {
  const user = userEvent.setup();
  asUser(<Build />, {
    role: "root",
    scopes: ["apps.read", "apps.write"],
    at: "/build",
    route: "/build",
    answers: {
      "/schema/application.json": schema,
      "/v1/namespaces": { items: [] },
      "/v1/plan": { instances: [], services: [] },
    },
  });
  const yaml = await screen.findByRole("textbox", { name: "Manifest as YAML" }, { timeout: 5000 });
  expect(screen.queryByRole("tab", { name: "Application" })).toBeNull();
  await user.click(yaml);
  await user.keyboard("{Control>}a{/Control}{Delete}");
  await user.paste("metadata: {name: watch}\nspec:\n  services:\n  - name: camera\n  - name: store\n");
  expect(await screen.findByRole("tab", { name: "Application" }, { timeout: 5000 })).toBeTruthy();
}, 20_000);

import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { asUser } from "../test-session";
import AppPage from "./app";

test("what a site was changed to is adopted, and is no generation to go back to", async () => {
  const user = userEvent.setup();
  const sent: string[] = [];
  const app = {
    key: { namespace: "default", name: "ebb" },
    generation: 2,
    deployed: true,
    status: "Ready",
    createdAt: "2026-01-01T00:00:00Z",
  };
  const version = (generation: number, image: string, more = {}) => ({
    generation,
    at: "2026-01-01T00:00:00Z",
    author: "anna",
    services: [{ name: "gauge", revision: image, image }],
    ...more,
  });
  asUser(<AppPage />, {
    role: "root",
    scopes: ["apps:read", "apps:write"],
    at: "/apps/default/ebb?tab=versions",
    route: "/apps/:namespace/:app",
    watch: [{ type: "set", kind: "app", id: "default/ebb", app }],
    answers: {
      "/v1/apps/default/ebb": {
        ...app,
        revisions: [
          version(2, "my/web:2"),
          version(1, "my/web:1"),
          version(2, "my/web:3", { site: "harbour", why: "it was changed at the root too" }),
        ],
      },
      "/v1/apps/default/ebb/rollout": {},
    },
    sent,
  });
  const table = await screen.findByRole("region", { name: "Versions" });
  const [newest, oldest, amended] = within(table).getAllByRole("row").slice(1);
  expect(newest!.textContent).toContain("2now");
  expect(newest!.textContent).toContain("my/web:1 → my/web:2");
  expect(oldest!.textContent).not.toContain("→");
  expect(amended!.textContent).toContain("2at harbour");
  expect(amended!.textContent).not.toContain("now");
  expect(amended!.textContent).toContain("my/web:2 → my/web:3");
  expect(within(amended!).queryByRole("button", { name: "Roll back" })).toBeNull();
  await user.click(within(amended!).getByRole("button", { name: "Adopt" }));
  const dialog = await screen.findByRole("dialog", { name: "Adopt what harbour was changed to?" });
  await user.click(within(dialog).getByRole("button", { name: "Adopt" }));
  await waitFor(() => expect(sent).toEqual(['{"action":"undo","amendment":"harbour"}']));
}, 20_000);

import { cleanup, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { ApiError } from "../api/client";
import { asUser } from "../test-session";
import Images, { parts, toDelete } from "./images";

const one = "sha256:" + "1".repeat(64);
const two = "sha256:" + "2".repeat(64);
const added = "2026-01-01T00:00:00Z";
const used = {
  name: "shop/web:1",
  digest: one,
  size: "3Mi",
  platforms: ["linux/amd64"],
  added,
  usedBy: ["default/shop/web"],
};
const also = { ...used, name: "shop/web:also" };
const kept = { name: "shop/old:2", digest: two, size: "5Ki", added, keptFor: ["default/shop/db"] };
const free = { name: "base@" + one, digest: one, size: "1Ki", added };

const refuse = () => {
  throw new ApiError(409, { code: "DENIED", detail: "default/shop/web (version 3) uses it" });
};

const show = (scopes: string[]) =>
  asUser(<Images />, {
    role: "root",
    scopes,
    at: "/images",
    route: "/images",
    answers: {
      "/v1/images": { items: [used, also, kept, free] },
      [`/v2/shop/old/manifests/${two}`]: refuse,
      [`/v2/shop/old/manifests/${two}?force=true`]: {},
      "/v2/shop/web/manifests/1": {},
    },
  });

test("images are listed with what uses them, and searched", async () => {
  const user = userEvent.setup();
  show(["images:read"]);
  expect(await screen.findByText("4 images")).toBeTruthy();
  const row = screen.getByText("shop/old").closest("tr")!;
  expect(within(row).getByText("5.0 KiB")).toBeTruthy();
  expect(row.textContent).toContain("default/shop/db (an earlier version)");
  expect(within(row).getByRole("link", { name: "default/shop/db" }).getAttribute("href")).toBe("/apps/default/shop");
  expect(screen.queryByRole("button", { name: /^Delete/ })).toBeNull();
  await user.type(screen.getByRole("textbox", { name: "Search images" }), "shop/db");
  expect(await screen.findByText("1 image")).toBeTruthy();
});

test("an image is deleted after a question, and the refusal is shown in words", async () => {
  const user = userEvent.setup();
  const { calls } = show(["images:read", "images:push"]);
  await user.click(await screen.findByRole("button", { name: "Delete shop/web:1" }));
  await user.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Delete" }));
  await waitFor(() => expect(calls).toContain("DELETE /v2/shop/web/manifests/1"));

  await user.click(screen.getByRole("button", { name: "Delete shop/old:2" }));
  await user.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Delete" }));
  expect(await screen.findByText("default/shop/web (version 3) uses it")).toBeTruthy();

  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  await user.click(screen.getByRole("button", { name: "Delete shop/old:2" }));
  const dialog = within(await screen.findByRole("dialog"));
  await user.click(dialog.getByRole("checkbox", { name: "Delete it all the same" }));
  await user.click(dialog.getByRole("button", { name: "Delete" }));
  await waitFor(() => expect(calls).toContain(`DELETE /v2/shop/old/manifests/${two}?force=true`));
});

test("a tag goes alone while the repository has another one of the image", () => {
  const all = [used, also, kept, free] as never[];
  expect(toDelete(used as never, all)).toBe("/v2/shop/web/manifests/1");
  expect(toDelete(kept as never, all)).toBe(`/v2/shop/old/manifests/${two}`);
  expect(toDelete(free as never, all)).toBe(`/v2/base/manifests/${one}`);
  expect(parts("a:5000/b/c:1")).toEqual({ repository: "a:5000/b/c", tag: "1" });
});

test("copies at processes that stand by are counted, where there are any", async () => {
  const at = (items: unknown[]) =>
    asUser(<Images />, {
      role: "root",
      scopes: ["images:read"],
      at: "/images",
      route: "/images",
      answers: { "/v1/images": { items } },
    });
  at([{ ...used, copies: { have: 1, of: 2 } }, kept]);
  expect(await screen.findByRole("columnheader", { name: "Copies" })).toBeTruthy();
  expect(screen.getByText("shop/web").closest("tr")!.textContent).toContain("1 of 2");
  cleanup();
  at([kept]);
  await screen.findByText("1 image");
  expect(screen.queryByRole("columnheader", { name: "Copies" })).toBeNull();
});

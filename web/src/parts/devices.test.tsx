import { screen, within } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import type { Instance, WorkerView } from "../api/types";
import { forgetWatches } from "../state/watch";
import { asUser } from "../test-session";
import { attached, DevicesOf } from "./devices";

const plc = "serial=0403-6001-A5";
const gpu = "acme.example/gpu=0";
const path = "/dev/serial/by-id/usb-B";
const worker = {
  name: "w1",
  facts: {
    attachable: [gpu, path, plc],
    deviceDetails: [
      { name: gpu, labels: { "acme.example/model": "T4", hall: "4" }, shares: 4 },
      { name: path, at: "/dev/ttyUSB1" },
      { name: plc, at: "/dev/ttyUSB0", labels: { vendor: "0403" }, shares: 1 },
    ],
  },
} as unknown as WorkerView;
const has = (id: string, at: string, ...devices: string[]) =>
  ({
    id,
    worker: at,
    devices,
    service: { app: { namespace: "default", name: "shop" }, service: "web" },
  }) as unknown as Instance;
const instances = [has("web-b", "w1", gpu, plc), has("web-a", "w1", gpu, "camera=gate"), has("web-c", "w2", gpu)];

const patience = { timeout: 20_000 };

beforeEach(forgetWatches);

test("devices are joined with the instances that have them, as skerry get devices does", () => {
  const list = attached(worker, instances);
  expect(list.map((d) => [d.name, d.class, d.instances.join(), d.shares, d.gone])).toEqual([
    [path, "", "", 1, false],
    [gpu, "acme.example/gpu", "web-a,web-b", 4, false],
    ["camera=gate", "camera", "web-a", 1, true],
    [plc, "serial", "web-b", 1, false],
  ]);
});

const show = (scopes: string[], w: WorkerView = worker) =>
  asUser(<DevicesOf w={w} />, {
    role: "cluster",
    scopes,
    at: "/workers/w1",
    route: "/workers/w1",
    answers: {},
    watch: instances.map((instance) => ({ type: "set", kind: "instance", id: instance.id, instance })),
  });

test("a device is shown with its labels, its shares and who has it", async () => {
  show(["workers:read", "apps:read"]);
  expect(await screen.findByText("4 devices", {}, patience)).toBeTruthy();
  const row = (await screen.findByText("acme.example/model=T4", {}, patience)).closest("tr")!;
  const cells = within(row)
    .getAllByRole("cell")
    .map((c) => c.textContent);
  expect(cells).toEqual(["acme.example/gpu", "0", "acme.example/model=T4hall=4", "–", "2", "4", "web-aweb-b"]);
  expect(within(row).getByRole("link", { name: "web-a" }).getAttribute("href")).toBe("/instances/web-a");
  expect(within(screen.getByText("gate").closest("tr")!).getByText("gone")).toBeTruthy();
});

test("who may not see instances is shown the devices alone", async () => {
  show(["workers:read"]);
  expect(await screen.findByText("3 devices", {}, patience)).toBeTruthy();
  expect(screen.queryByText("Instances")).toBeNull();
  expect(screen.queryByText("web-a")).toBeNull();
});

test("a worker that offers none says what it would offer", async () => {
  show(["workers:read"], { name: "w2" } as unknown as WorkerView);
  expect(await screen.findByText(/--device-class/, {}, patience)).toBeTruthy();
});

import { expect, test } from "vitest";
import { fresh, Manifest, manifestText, parsePath, pathText } from "./document";

const shop = `# of the harbour
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: front   # the first that people see
    image: shop/front:1
    links:
    - {service: catalog, maxLatency: 20ms}
    - service: orders
  - name: catalog
    image: shop/catalog:1
    resources:
  - name: orders
    image: shop/orders:1
    links: [{service: catalog}]
`;

test("a changed field leaves comments and everything else as they are", () => {
  const m = new Manifest(shop).set(["spec", "services", 0, "image"], "shop/front:2");
  expect(m.text).toContain("# of the harbour");
  expect(m.text.split("\n").filter((l) => !l.includes("name: front"))).toEqual(
    shop
      .replace("front:1", "front:2")
      .split("\n")
      .filter((l) => !l.includes("name: front")),
  );
  expect(m.text).toContain("name: front # the first that people see");
  expect(m.services[0]!.image).toBe("shop/front:2");
  expect(m.services[1]!.image).toBe("shop/catalog:1");
});

test("a field below one that is empty or not there is made with what leads to it", () => {
  const m = new Manifest(shop)
    .set(["spec", "services", 1, "resources", "memory"], "64Mi")
    .set(["spec", "services", 2, "ports", 0, "port"], 80);
  expect(m.services[1]!.resources).toEqual({ memory: "64Mi" });
  expect(m.services[2]!.ports).toEqual([{ port: 80 }]);
  expect(new Manifest("").set(["metadata", "name"], "x").text).toBe("metadata:\n  name: x\n");
});

test("renamed and removed services take the links to them along", () => {
  const m = new Manifest(shop).rename(1, "stock");
  expect(m.services[0]!.links![0]).toEqual({ service: "stock", maxLatency: "20ms" });
  expect(m.services[2]!.links).toEqual([{ service: "stock" }]);
  const n = m.removeService(1);
  expect(n.services.map((s) => s.name)).toEqual(["front", "orders"]);
  expect(n.services[0]!.links).toEqual([{ service: "orders" }]);
  expect(n.services[1]!.links).toBeUndefined();
});

test("links are drawn once, and not to oneself", () => {
  const m = new Manifest(shop);
  expect(m.link(0, "catalog")).toBe(m);
  expect(m.link(1, "catalog")).toBe(m);
  expect(m.link(1, "orders").services[1]!.links).toEqual([{ service: "orders" }]);
});

test("text that is not YAML is said to be so, and where", () => {
  const m = new Manifest("spec: {services: [");
  expect(m.broken).toBeDefined();
  expect(m.services).toEqual([]);
  expect(new Manifest("just words").broken).toBeDefined();
  expect(new Manifest(fresh).broken).toBeUndefined();
  // What has the wrong shape is the server's to refuse; nothing here falls over it.
  expect(new Manifest("spec: {services: 7}").services).toEqual([]);
  expect(new Manifest("spec: {services: [null, 3]}").services).toEqual([]);
});

test("problems are marked at the value, or at what would hold it", () => {
  const m = new Manifest(shop);
  const at = (path: string) => {
    const [mark] = m.marks([{ path, message: "no" }]);
    return shop.slice(mark!.from, mark!.to);
  };
  expect(at("spec.services[0].links[0].maxLatency")).toBe("20ms");
  expect(at("spec.services[1].image")).toBe("shop/catalog:1");
  expect(at("spec.services[1].replicas")).toBe("name");
  expect(at("metadata")).toBe("metadata");
  expect(at("nowhere")).not.toBe("");
});

test("paths are read as they are written", () => {
  const path = ["spec", "services", 2, "links", 0, "maxLatency"];
  expect(pathText(path)).toBe("spec.services[2].links[0].maxLatency");
  expect(parsePath(pathText(path))).toEqual(path);
});

test("what means something else in YAML 1.1 is quoted, and what is shared is copied before it is changed", () => {
  const shared =
    "spec:\n  services:\n  - name: a\n    probes: &p\n      liveness: {interval: 1s}\n  - name: b\n    probes: *p\n";
  const m = new Manifest(shared)
    .set(["spec", "services", 1, "probes", "liveness", "interval"], "2s")
    .set(["spec", "services", 0, "update", "rollback"], "off");
  expect(m.services[0]!.probes).toEqual({ liveness: { interval: "1s" } });
  expect(m.services[1]!.probes).toEqual({ liveness: { interval: "2s" } });
  expect(m.text).toContain('rollback: "off"');
});

const script = `apiVersion: skerry/v1
kind: Application
metadata:
  name: notes
spec:
  services:
    - name: web
      image: notes/web:1
      command:
        - /bin/sh
        - -c
        - | # begins it
          #!/bin/sh
          if true; then
              echo "a line that is longer than the eighty columns at which a text is usually folded"
          fi

          exec notes   
          \t
      env:
        ABOUT: >-
          one paragraph
          in two lines

          and another
        KEPT: |+
          x


        DEEP: |2
            two more
      replicas: 1
`;

test("texts in blocks come back as they were written", () => {
  const changed = new Manifest(script).set(["spec", "services", 0, "replicas"], 2);
  expect(changed.text).toBe(script.replace("replicas: 1", "replicas: 2"));
  expect(changed.model).toEqual({
    ...new Manifest(script).model,
    spec: { services: [{ ...new Manifest(script).services[0], replicas: 2 }] },
  });
  const more = new Manifest(script).addService();
  expect(more.text.startsWith(script)).toBe(true);
  // One that is changed stays below |, and all others as they were.
  const other = new Manifest(script).set(["spec", "services", 0, "env", "KEPT"], "a\nb\n");
  expect(other.text).toBe(script.replace("KEPT: |+\n          x\n\n\n", "KEPT: |\n          a\n          b\n"));
});

test("what the server has of a manifest is written as a person would", () => {
  const manifest = new Manifest(script).model as { spec: { services: object[] } };
  Object.assign(manifest.spec.services[0]!, { security: {}, logs: {}, volumes: [{ name: "data", local: {} }] });
  const text = manifestText(manifest);
  expect(new Manifest(text).model).toEqual({
    ...manifest,
    spec: { services: [{ ...new Manifest(script).services[0], volumes: [{ name: "data", local: {} }] }] },
  });
  expect(text).toContain("ABOUT: |-\n        one paragraph in two lines\n");
  expect(text).not.toContain("security");
  const long =
    "a line that is longer than the eighty columns at which a text is usually folded, by some words\nand another\n";
  expect(manifestText({ args: [long] })).toBe(`args:\n- |\n  ${long.replace("\n", "\n  ")}`);
});

import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test } from "vitest";
import real from "../../../spec/testdata/application.schema.json";
import { Manifest, pathText } from "./document";
import { Fields, ServiceForm } from "./form";
import { editable, groups, kindOf, labelOf, resolve, type Schema } from "./schema";

const schema = real as unknown as Schema;
const service = resolve(schema, { $ref: "#/$defs/ServiceSpec" });

function Harness({ text, errors = new Map<string, string>() }: { text: string; errors?: Map<string, string> }) {
  const [m, setM] = useState(() => new Manifest(text));
  return (
    <MantineProvider env="test">
      <ServiceForm
        c={{ root: schema, errors, suggestions: {}, set: (p, v) => setM((o) => o.set(p, v)) }}
        service={service}
        path={["spec", "services", 0]}
        value={m.services[0] ?? {}}
      />
      <pre data-testid="text">{m.text}</pre>
    </MantineProvider>
  );
}

test("every field of a service has its place", () => {
  const shown = groups(service).flatMap((g) => g.fields);
  expect([...shown].sort()).toEqual(editable(service).sort());
  expect(shown).not.toContain("pinned");
  expect(groups(service).some((g) => g.title === "More")).toBe(false);
});

test("every field of the schema can be entered, at any depth", () => {
  const seen = new Set<string>();
  const visit = (s: Schema, path: string) => {
    const r = resolve(schema, s);
    expect(() => kindOf(r), path).not.toThrow();
    if (s.$ref) {
      if (seen.has(s.$ref)) return;
      seen.add(s.$ref);
    }
    for (const [k, v] of Object.entries(r.properties ?? {})) visit(v, path + "." + k);
    if (r.items) visit(r.items, path + "[]");
  };
  visit(service, "service");
  expect(seen.size).toBeGreaterThan(30);
  const value = { ports: [{}], resources: {}, placement: {}, probes: {}, env: { A: "b" }, command: ["x"] };
  render(
    <MantineProvider env="test">
      <Fields
        c={{ root: schema, errors: new Map(), suggestions: {}, set: () => {} }}
        schema={service}
        path={[]}
        value={value}
      />
    </MantineProvider>,
  );
  for (const name of editable(service)) expect(document.querySelector(`[data-path="${name}"]`), name).not.toBeNull();
});

test("what is entered is in the text, and what is taken out is not", async () => {
  const user = userEvent.setup();
  render(<Harness text={"# kept\nspec:\n  services:\n  - name: web\n    image: a\n"} />);
  const image = screen.getByRole("textbox", { name: /^Image/ });
  await user.clear(image);
  await user.type(image, "shop/web:2");
  await user.click(screen.getByRole("button", { name: "Add to env" }));
  expect(screen.getByTestId("text").textContent).toContain("image: shop/web:2");
  expect(screen.getByTestId("text").textContent).toContain("# kept");
  expect(screen.getByTestId("text").textContent).toContain('NAME: ""');
  await user.click(screen.getByRole("button", { name: "Remove NAME" }));
  expect(screen.getByTestId("text").textContent).not.toContain("env");
  await user.clear(image);
  expect(screen.getByTestId("text").textContent).not.toContain("image");
});

test("a refusal stands at its field and at its group", () => {
  const path = ["spec", "services", 0, "image"];
  render(
    <Harness
      text={"spec:\n  services:\n  - name: web\n"}
      errors={
        new Map([
          [pathText(path), "is missing"],
          ["spec.services[0].resources.memory", "no"],
        ])
      }
    />,
  );
  expect(screen.getByText("is missing")).toBeDefined();
  expect(screen.getAllByText("1 wrong").length).toBe(2);
});

test("names become words", () => {
  expect(labelOf("maxLatency")).toBe("Max latency");
  expect(labelOf("exclusiveCPUs")).toBe("Exclusive CPUs");
  expect(labelOf("perWorker")).toBe("Per worker");
});

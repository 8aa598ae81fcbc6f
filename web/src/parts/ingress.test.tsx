import { MantineProvider } from "@mantine/core";
import { render } from "@testing-library/react";
import { expect, test } from "vitest";
import type { components } from "../api/schema";
import { IngressLine } from "./ingress";

type Ingress = components["schemas"]["IngressView"];
const way: Ingress = { protocol: "http", host: "shop.example.org", listen: 443, tls: "acme", policy: "closest" };
const day = 86_400_000;

function shown(of: Ingress): string {
  const { container } = render(
    <MantineProvider env="test">
      <IngressLine of={of} />
    </MantineProvider>,
  );
  return container.querySelector("style")
    ? [...container.childNodes].map((n) => (n.nodeName === "STYLE" ? "" : n.textContent)).join("")
    : container.textContent!;
}

test("a certificate has its state, its reason and its end beside the host", () => {
  const end = new Date(Date.now() + 20 * day + 1000).toISOString();
  const text = shown({
    ...way,
    certificate: { state: "valid", notAfter: end, reason: "the authority does not answer" },
  });
  for (const part of ["http shop.example.org:443", "valid", "in 20 d", "the authority does not answer"])
    expect(text).toContain(part);
});

test("one that has ended says so", () => {
  const end = new Date(Date.now() - 2 * day - 1000).toISOString();
  expect(shown({ ...way, certificate: { state: "waiting", notAfter: end } })).toContain("ended 2 d ago");
});

test("without a certificate there is none of it", () => {
  const text = shown({ ...way, tls: "off", problems: ["no worker is in touch"] });
  expect(text).toContain("http shop.example.org:443 – no worker is in touch");
  expect(text).not.toContain("Certificate");
});

import { Badge, Text } from "@mantine/core";
import type { components } from "../api/schema";
import { span } from "../format";

type Ingress = components["schemas"]["IngressView"];

const colours: Record<string, string> = {
  valid: "green",
  ordering: "blue",
  waiting: "blue",
  unserved: "red",
  refused: "red",
};

/** IngressLine shows where clients come in, what is wrong with that, and the certificate of the host with its reason. */
export function IngressLine({ of: way }: { of: Ingress }) {
  const cert = way.certificate;
  const problems = way.problems?.length ? ` – ${way.problems.join("; ")}` : "";
  return (
    <>
      {`${way.protocol} ${way.host ?? ""}:${way.listen}${way.path ?? ""}${problems}`}
      {cert && (
        <Text size="sm" component="div">
          Certificate{" "}
          <Badge variant="light" color={colours[cert.state] ?? "gray"}>
            {cert.state}
          </Badge>
          {cert.notAfter && ends(cert.notAfter)}
          {cert.reason && ` – ${cert.reason}`}
        </Text>
      )}
    </>
  );
}

/** ends tells when a certificate ends, and in how long that is. */
function ends(at: string, now = Date.now()): string {
  const left = Date.parse(at) - now;
  return left > 0 ? ` until ${new Date(at).toLocaleDateString()}, in ${span(left)}` : ` ended ${span(-left)} ago`;
}

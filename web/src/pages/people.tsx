import { Tabs } from "@mantine/core";
import type { ReactNode } from "react";
import { useSearchParams } from "react-router-dom";
import { Page } from "../parts/basics";
import { Account } from "../people/account";
import { Audit } from "../people/audit";
import { JoinTokens, Members } from "../people/joins";
import { Certificates, Orgs } from "../people/orgs";
import { Secrets } from "../people/secrets";
import { Roles, Users } from "../people/users";
import { useSession } from "../state/session";

interface Part {
  id: string;
  label: string;
  scope?: string;
  show: () => ReactNode;
}

const parts: Part[] = [
  { id: "account", label: "Your account", show: () => <Account /> },
  { id: "users", label: "Users", scope: "users:admin", show: () => <Users /> },
  { id: "roles", label: "Roles", show: () => <Roles /> },
  { id: "orgs", label: "Organisations", scope: "orgs:read", show: () => <Orgs /> },
  { id: "secrets", label: "Secrets", scope: "apps:read", show: () => <Secrets /> },
  { id: "certificates", label: "Certificates", scope: "apps:read", show: () => <Certificates /> },
  { id: "tokens", label: "Join tokens", scope: "tokens:admin", show: () => <JoinTokens /> },
  { id: "members", label: "Members", scope: "members:admin", show: () => <Members /> },
  { id: "audit", label: "Audit log", scope: "audit:read", show: () => <Audit /> },
];

/** People is about who may do what here; a part that the user may not see is not offered. */
export default function People() {
  const { can, who } = useSession();
  const [params, setParams] = useSearchParams();
  const shown = parts.filter((p) => !p.scope || can(p.scope));
  const at = shown.find((p) => p.id === params.get("tab"))?.id ?? "account";
  return (
    <Page title="People and access" sub={`Of ${who?.role === "root" ? "the root" : "cluster " + (who?.site ?? "")}`}>
      <Tabs
        value={at}
        onChange={(t) => setParams(t && t !== "account" ? { tab: t } : {}, { replace: true })}
        keepMounted={false}
      >
        <Tabs.List mb="md">
          {shown.map((p) => (
            <Tabs.Tab key={p.id} value={p.id}>
              {p.label}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        {shown.map((p) => (
          <Tabs.Panel key={p.id} value={p.id}>
            {p.show()}
          </Tabs.Panel>
        ))}
      </Tabs>
    </Page>
  );
}

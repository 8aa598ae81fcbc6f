import {
  ActionIcon,
  Alert,
  AppShell,
  Box,
  Burger,
  Group,
  Menu,
  Modal,
  NavLink,
  ScrollArea,
  Text,
  Title,
  useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { type ComponentType, type ReactNode, useEffect, useRef } from "react";
import { Link, useLocation } from "react-router-dom";
import {
  IconApps,
  IconBoxMultiple,
  IconChartBar,
  IconDatabase,
  IconDeviceDesktop,
  IconDoor,
  IconHome,
  IconLogout,
  IconMap2,
  IconMoonStars,
  IconPackage,
  IconPlugConnectedX,
  IconServer2,
  IconSun,
  IconUpload,
  IconUser,
  IconUsers,
  IconWorld,
} from "./icons";
import { LoginForm } from "./pages/login";
import { useSession } from "./state/session";
import { useWatch } from "./state/watch";

interface Item {
  to: string;
  label: string;
  icon: ComponentType<{ size?: number; "aria-hidden"?: boolean }>;
  /** scope is what the user must have for the page to be of use. */
  scope?: string;
  tier?: "root" | "cluster";
}

const items: Item[] = [
  { to: "/", label: "Overview", icon: IconHome },
  { to: "/apps", label: "Applications", icon: IconApps, scope: "apps:read" },
  { to: "/instances", label: "Instances", icon: IconBoxMultiple, scope: "apps:read" },
  { to: "/volumes", label: "Volumes", icon: IconDatabase, scope: "apps:read" },
  { to: "/images", label: "Images", icon: IconPackage, scope: "images:read" },
  { to: "/ingresses", label: "Ingresses", icon: IconDoor, scope: "apps:read" },
  { to: "/map", label: "Map", icon: IconMap2, scope: "apps:read" },
  { to: "/clusters", label: "Clusters", icon: IconWorld, scope: "clusters:read", tier: "root" },
  { to: "/upgrades", label: "Upgrades", icon: IconUpload, scope: "clusters:read", tier: "root" },
  { to: "/workers", label: "Workers", icon: IconServer2, scope: "workers:read", tier: "cluster" },
  { to: "/bench", label: "Bench reports", icon: IconChartBar },
  { to: "/people", label: "People and access", icon: IconUsers },
];

export function Shell({ children }: { children: ReactNode }) {
  const { client, who, phase, can, logout } = useSession();
  const [opened, { toggle, close }] = useDisclosure();
  const { pathname } = useLocation();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const fleet = useWatch(client, { kinds: ["app", "event"] });
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);

  // Who moves with keyboard or screen reader begins at the new page's title.
  useEffect(() => {
    close();
    if (first.current) {
      first.current = false;
      return;
    }
    main.current?.querySelector<HTMLElement>("#title")?.focus();
    window.scrollTo(0, 0);
  }, [pathname, close]);

  const shown = items.filter((i) => (!i.scope || can(i.scope)) && (!i.tier || i.tier === who?.role));
  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 220, breakpoint: "sm", collapsed: { mobile: !opened } }}
      padding="md"
    >
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <AppShell.Header>
        <Group h="100%" px="md" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger
              opened={opened}
              onClick={toggle}
              hiddenFrom="sm"
              size="sm"
              aria-label={opened ? "Close the menu" : "Open the menu"}
              aria-expanded={opened}
            />
            <img src="/ui/icon.svg" width={28} height={28} alt="" />
            <Text fw={700}>Skerry</Text>
            <Text c="dimmed" size="sm" visibleFrom="xs">
              {who?.role === "cluster" ? "site " + who.site : who?.site}
            </Text>
          </Group>
          <Group gap="xs" wrap="nowrap">
            <ActionIcon
              variant="default"
              size="lg"
              aria-label={colorScheme === "dark" ? "Light colours" : "Dark colours"}
              onClick={() => setColorScheme(colorScheme === "dark" ? "light" : "dark")}
            >
              {colorScheme === "dark" ? <IconSun size={18} aria-hidden /> : <IconMoonStars size={18} aria-hidden />}
            </ActionIcon>
            <Menu position="bottom-end">
              <Menu.Target>
                <ActionIcon variant="default" size="lg" aria-label={"You are " + who?.user}>
                  <IconUser size={18} aria-hidden />
                </ActionIcon>
              </Menu.Target>
              <Menu.Dropdown>
                <Menu.Label>{who?.user}</Menu.Label>
                <Menu.Item component={Link} to="/people" leftSection={<IconUsers size={16} aria-hidden />}>
                  Account and tokens
                </Menu.Item>
                <Menu.Item
                  leftSection={<IconDeviceDesktop size={16} aria-hidden />}
                  onClick={() => setColorScheme("auto")}
                >
                  Colours of the system
                </Menu.Item>
                <Menu.Item leftSection={<IconLogout size={16} aria-hidden />} onClick={() => void logout()}>
                  Log out
                </Menu.Item>
              </Menu.Dropdown>
            </Menu>
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" component="nav" aria-label="Pages">
        <ScrollArea>
          {shown.map((i) => {
            const active = i.to === "/" ? pathname === "/" : pathname === i.to || pathname.startsWith(i.to + "/");
            return (
              <NavLink
                key={i.to}
                component={Link}
                to={i.to}
                label={i.label}
                leftSection={<i.icon size={18} aria-hidden />}
                active={active}
                aria-current={active ? "page" : undefined}
              />
            );
          })}
        </ScrollArea>
      </AppShell.Navbar>
      <AppShell.Main id="main" ref={main} tabIndex={-1}>
        <Box maw={1800} mx="auto">
          {!fleet.live && (fleet.synced || fleet.error) && (
            <Alert
              color="yellow"
              mb="md"
              icon={<IconPlugConnectedX aria-hidden />}
              title={fleet.synced ? "The connection is lost" : "The server cannot be followed"}
              role="status"
            >
              {fleet.synced ? "What you see is of before. It goes on" : "What it has is not known yet. It is shown"} by
              itself as soon as the server can be reached: {fleet.error}.
            </Alert>
          )}
          {children}
        </Box>
      </AppShell.Main>
      <Modal
        opened={phase === "again"}
        onClose={() => {}}
        withCloseButton={false}
        closeOnEscape={false}
        closeOnClickOutside={false}
        centered
        title={
          <Title order={2} size="h4">
            Your session has ended
          </Title>
        }
      >
        <Text size="sm" mb="md">
          Log in again to go on; nothing that you have entered is lost.
        </Text>
        {phase === "again" && <LoginForm user={who?.user} />}
      </Modal>
    </AppShell>
  );
}

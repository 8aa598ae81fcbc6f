# A front end with a sidecar, a store, and their addresses.
job "shop" {
  datacenters = ["dc1"]
  type        = "service"

  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }

  update {
    max_parallel     = 1
    min_healthy_time = "5s"
    healthy_deadline = "3m"
    auto_revert      = true
    canary           = 1
  }

  group "web" {
    count = 2

    network {
      mode = "bridge"
      port "http" {
        static = 8080
        to     = 80
      }
    }

    service {
      name     = "web"
      port     = "http"
      provider = "nomad"
      check {
        type     = "http"
        path     = "/ready"
        interval = "5s"
        timeout  = "2s"
      }
    }

    restart {
      attempts = 3
      interval = "10m"
      delay    = "15s"
      mode     = "fail"
    }

    task "prepare" {
      driver = "docker"
      lifecycle { hook = "prestart" }
      config { image = "example/prepare:1" }
    }

    task "server" {
      driver = "docker"
      config {
        image       = "example/web:2"
        hostname    = "www.example"
        extra_hosts = ["lighthouse:203.0.113.5"]
        command = "serve"
        args    = ["--port", "${NOMAD_PORT_http}", "--config=${NOMAD_TASK_DIR}/web.conf"]
        ports   = ["http"]
        cap_drop = ["ALL"]
      }
      env {
        STORE = "store:6379"
        LEVEL = 3
      }
      template {
        destination = "local/web.conf"
        perms       = "0640"
        data        = <<-EOF
          greeting = welcome
            indented = yes
        EOF
      }
      template {
        destination = "secrets/env"
        env         = true
        data        = "MODE=fast\n# none\nNAME = shop\n"
      }
      resources {
        cpu        = 200
        memory     = 64
        memory_max = 128
      }
      kill_timeout = "20s"
      user         = "1000"
    }

    task "log" {
      driver = "docker"
      lifecycle {
        hook    = "prestart"
        sidecar = true
      }
      config { image = "example/log:1" }
    }
  }

  group "store" {
    constraint {
      attribute = "${meta.disk}"
      value     = "fast"
    }
    network {
      port "db" { to = 6379 }
    }
    volume "data" {
      type   = "host"
      source = "data"
    }
    service {
      name = "shop-store"
      port = "db"
      check {
        type     = "tcp"
        interval = "10s"
        timeout  = "1s"
      }
    }
    task "store" {
      driver = "docker"
      config {
        image = "example/store:1"
        ports = ["db"]
      }
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
    }
  }
}

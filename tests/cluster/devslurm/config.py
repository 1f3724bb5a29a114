"""The text of every configuration file of a cluster. Nothing here touches the machine.

Settings are those of Slurm 22.05 (Debian 12); see slurm.conf(5), gres.conf(5), cgroup.conf(5)
and slurmdbd.conf(5).
"""

from __future__ import annotations

from devslurm.spec import ClusterSpec, Layout, Ports

CONTROLLER_HOST = "ctl"


def slurm_conf(layout: Layout, spec: ClusterSpec, ports: Ports) -> str:
    """Return slurm.conf, one file for clients, controller and nodes."""
    lines = [
        "ClusterName=dev",
        f"SlurmctldHost={CONTROLLER_HOST}({ports.address(0)})",
        f"SlurmctldPort={ports.controller}",
        # The controller listens on its own address only. For slurmd and srun (NoInAddrAny) that
        # cannot work on loopback: connections between 127.x addresses come from 127.0.0.1, and a
        # step answers srun at the address that srun's connection came from.
        "CommunicationParameters=NoCtldInAddrAny",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "CredType=cred/munge",
        "SlurmUser=root",
        "SlurmdUser=root",
        f"StateSaveLocation={layout.controller}",
        f"SlurmdSpoolDir={layout.spool}/%n",
        f"SlurmctldPidFile={layout.controller}/pid",
        f"SlurmdPidFile={layout.spool}/%n.pid",
        f"SlurmctldLogFile={layout.logs}/slurmctld.log",
        f"SlurmdLogFile={layout.logs}/slurmd.%n.log",
        # Believe the CPUs and memory below, which are more than the machine has.
        "SlurmdParameters=config_overrides",
        f"ProctrackType=proctrack/{'cgroup' if spec.cgroup else 'linuxproc'}",
        f"TaskPlugin=task/{'cgroup' if spec.cgroup else 'none'}",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        "DefMemPerCPU=500",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=2",
        # A node that was away is taken back as soon as it registers, whatever the reason was.
        "ReturnToService=2",
        f"SlurmdTimeout={spec.node_timeout_s}",
        f"MessageTimeout={spec.message_timeout_s}",
        f"KillWait={spec.kill_wait_s}",
        # The defaults collect work for 3 s and look again after 60 s, for clusters under load.
        "SchedulerParameters=sched_interval=2,batch_sched_delay=0",
        # squeue must still know a finished job when Snakemake asks: more than its longest pause
        # between two questions, 180 s.
        "MinJobAge=300",
        "MailProg=/bin/true",
    ]
    if not spec.cgroup:
        # Without a cgroup only this poll (every 2 s, above) ends a step that takes too much.
        lines.append("JobAcctGatherParams=OverMemoryKill")
    if spec.gpus:
        lines.append("GresTypes=gpu")
    if spec.accounting:
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            f"AccountingStorageHost={ports.address(0)}",
            f"AccountingStoragePort={ports.database}",
            # Despite its name the munge socket; AuthInfo is not used for this connection.
            f"AccountingStoragePass={layout.munge_socket}",
            "AccountingStoreFlags=job_comment",
        ]
        # Without slurmdbd this line is fatal for slurmctld.
        if spec.gpus:
            lines.append("AccountingStorageTRES=gres/gpu")
    else:
        lines.append("AccountingStorageType=accounting_storage/none")
    gres = f" Gres=gpu:{spec.gpu_type}:{spec.gpus}" if spec.gpus else ""
    lines += [
        f"NodeName=node{number} NodeAddr={ports.address(number)} Port={port}"
        f" CPUs={spec.cpus} RealMemory={spec.memory_mb}{gres}"
        for number, port in enumerate(ports.nodes, start=1)
    ]
    lines.append("PartitionName=gpu Nodes=ALL Default=YES DefaultTime=10 MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def gres_conf(layout: Layout, spec: ClusterSpec) -> str:
    """Return gres.conf: GPUs need device files, a count alone is not believed."""
    if not spec.gpus:
        return ""
    return (
        f"Name=gpu Type={spec.gpu_type} File={layout.devices}/gpu[0-{spec.gpus - 1}]"
        # AMD: steps see their GPUs in ROCR_VISIBLE_DEVICES.
        " Flags=amd_gpu_env\n"
    )


def cgroup_conf(spec: ClusterSpec) -> str:
    """Return cgroup.conf. 22.05 knows no `disabled`; without spec.cgroup nothing is mounted."""
    lines = ["CgroupPlugin=cgroup/v1"]
    if spec.cgroup:
        lines += ["ConstrainRAMSpace=yes", "ConstrainSwapSpace=no"]
    return "\n".join(lines) + "\n"


def slurmdbd_conf(layout: Layout, ports: Ports) -> str:
    """Return slurmdbd.conf; the database itself is found through MYSQL_UNIX_PORT."""
    return (
        "\n".join(
            [
                "AuthType=auth/munge",
                f"AuthInfo=socket={layout.munge_socket}",
                f"DbdHost={CONTROLLER_HOST}",
                f"DbdAddr={ports.address(0)}",
                f"DbdPort={ports.database}",
                "CommunicationParameters=NoInAddrAny",
                "SlurmUser=root",
                f"LogFile={layout.logs}/slurmdbd.log",
                f"PidFile={layout.database}/slurmdbd.pid",
                "StorageType=accounting_storage/mysql",
                "StorageHost=localhost",
                "StorageUser=root",
                "StorageLoc=slurm_acct",
            ]
        )
        + "\n"
    )


def hosts(spec: ClusterSpec, ports: Ports, machine: str) -> str:
    """Return /etc/hosts for nodes and controller: ours first, then the machine's own lines."""
    names = [CONTROLLER_HOST, *(f"node{number}" for number in range(1, spec.nodes + 1))]
    ours = [f"{ports.address(number)} {name}" for number, name in enumerate(names)]
    return "\n".join(["127.0.0.1 localhost", *ours, machine.strip()]) + "\n"

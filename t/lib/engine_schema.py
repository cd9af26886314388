"""The part of the engine's API that is kept here: {type: {field: (arguments,
type)}}; None: the engine has it, and nobody asks for it here."""


def arguments(text):
    return dict(word.split(":") for word in text.split())


def absent(text):
    return dict.fromkeys(text.split())


SCHEMA = {
    "Query": dict(absent("""
        address changeset cloud currentEnv currentFunctionCall currentModule
        currentTypeDefs currentWorkspace directory engine env envFile error
        file function generatedCode git host http id json llm module
        moduleSource node secret setSecret sourceMap typeDef"""),
        **dict.fromkeys("load%sFromID" % name for name in """
        Address Binding Changeset Check CheckGroup ClientFilesyncMirror Cloud
        CurrentModule DiffStat Directory EngineCacheEntry EngineCacheEntrySet
        EngineCache Engine EnumTypeDef EnumValueTypeDef EnvFile Env
        EnvVariable Error ErrorValue Exportable FieldTypeDef File FunctionArg
        FunctionCallArgValue FunctionCall Function GeneratedCode Generator
        GeneratorGroup GitRef GitRepository HTTPState HealthcheckConfig Host
        InputTypeDef InterfaceTypeDef JSONValue LLM LLMTokenUsage Label
        ListTypeDef ModuleConfigClient Module ModuleSource ObjectTypeDef Port
        RemoteGitMirror SDKConfig ScalarTypeDef SearchResult SearchSubmatch
        Secret Socket SourceMap Stat Syncer Terminal TypeDef Up UpGroup
        Workspace""".split()), **{
        "version": ({}, "String"),
        "defaultPlatform": ({}, "Platform"),
        "container": (arguments("platform:Platform"), "Container"),
        "cacheVolume": (arguments(
            "key:String! source:ID sharing:CacheSharingMode owner:String"),
            "CacheVolume"),
        "loadContainerFromID": (arguments("id:ContainerID!"), "Container"),
        "loadCacheVolumeFromID": (arguments("id:CacheVolumeID!"),
                                  "CacheVolume"),
        "loadServiceFromID": (arguments("id:ServiceID!"), "Service")}),
    "Container": dict(absent("""
        asTarball combinedOutput defaultArgs directory dockerHealthcheck
        entrypoint envVariables exists experimentalWithAllGPUs
        experimentalWithGPU export exportImage exposedPorts file imageRef
        import labels mounts platform publish rootfs stat terminal up user
        withAnnotation withDefaultArgs withDefaultTerminalCmd withDirectory
        withDockerHealthcheck withEntrypoint withEnvFileVariables withError
        withFile withFiles withMountedDirectory withMountedFile
        withMountedSecret withMountedTemp withRegistryAuth withRootfs
        withSecretVariable withServiceBinding withSymlink withUnixSocket
        withVolatileVariable withoutAnnotation withoutDefaultArgs
        withoutDirectory withoutDockerHealthcheck withoutEntrypoint
        withoutExposedPort withoutFile withoutFiles withoutLabel withoutMount
        withoutRegistryAuth withoutSecretVariable withoutUnixSocket
        withoutUser withoutVolatileVariable withoutWorkdir workdir"""), **{
        "id": ({}, "ID"),
        "sync": ({}, "ID"),
        "stdout": ({}, "String"),
        "stderr": ({}, "String"),
        "exitCode": ({}, "Int"),
        "envVariable": (arguments("name:String!"), "String"),
        "label": (arguments("name:String!"), "String"),
        "from": (arguments("address:String!"), "Container"),
        "withEnvVariable": (arguments(
            "name:String! value:String! expand:Boolean"), "Container"),
        "withoutEnvVariable": (arguments("name:String!"), "Container"),
        "withLabel": (arguments("name:String! value:String!"), "Container"),
        "withUser": (arguments("name:String!"), "Container"),
        "withWorkdir": (arguments("path:String! expand:Boolean"),
                        "Container"),
        "withMountedCache": (arguments(
            "path:String! cache:ID! source:ID sharing:CacheSharingMode "
            "owner:String expand:Boolean"), "Container"),
        "withNewFile": (arguments(
            "path:String! contents:String! permissions:Int owner:String "
            "expand:Boolean"), "Container"),
        "withExposedPort": (arguments(
            "port:Int! protocol:NetworkProtocol description:String "
            "experimentalSkipHealthcheck:Boolean"), "Container"),
        "withExec": (arguments(
            "args:[String!]! useEntrypoint:Boolean stdin:String "
            "redirectStdin:String redirectStdout:String "
            "redirectStderr:String expect:ReturnType "
            "experimentalPrivilegedNesting:Boolean "
            "insecureRootCapabilities:Boolean expand:Boolean noInit:Boolean"),
            "Container"),
        "asService": (arguments(
            "args:[String!] useEntrypoint:Boolean "
            "experimentalPrivilegedNesting:Boolean "
            "insecureRootCapabilities:Boolean expand:Boolean noInit:Boolean"),
            "Service")}),
    "Service": dict(absent("ports terminal up withHostname"), **{
        "id": ({}, "ID"),
        "sync": ({}, "ID"),
        "start": ({}, "ID"),
        "stop": (arguments("kill:Boolean"), "ID"),
        "hostname": ({}, "String"),
        "endpoint": (arguments("port:Int scheme:String"), "String")}),
    "CacheVolume": {"id": ({}, "ID")},
}

SHARING = ("SHARED", "PRIVATE", "LOCKED")
EXPECT = ("SUCCESS", "FAILURE", "ANY")
ENUMS = {"CacheSharingMode": (SHARING, "core.CacheSharingMode"),
         "ReturnType": (EXPECT, "core.ReturnTypes"),
         "NetworkProtocol": (("TCP", "UDP"), "core.NetworkProtocol")}
OBJECTS = ("Container", "Service", "CacheVolume")

# what the engine keeps over a clean end, with all it was made of

KEPT = ("from", "withExec", "withNewFile", "cacheVolume")

//! `cargo xtask rivals fetch`: what the rivals' workspace needs and Cargo does not bring.
//!
//! RocksDB takes half an hour to compile, and its Java package already holds a library that exports
//! the whole C interface. This chore takes that library out of the package, checks both against
//! known digests, and puts it where `rivals/.cargo/config.toml` tells the build to look. The chore
//! fetches nothing unless the user asks: an ordinary build knows nothing of rivals.
//!
//! ```text
//! org.rocksdb:rocksdbjni:11.8.1 (jar, kept) --unzip--> librocksdbjni-linux64.so
//!                                                      = rivals/.fetched/lib/librocksdb.so
//! crate librocksdb-sys: rocksdb/tools/db_bench*    --g++, that library--> rivals/.fetched/db_bench
//!                       rocksdb/db_stress_tool/* --the same--> rivals/.fetched/db_stress
//!                       rocksdb/env/env_basic_test --the same--> rivals/.fetched/env_basic_test
//! ```
//!
//! Invariants:
//! 1. A library whose digest is not the one below is never left in place.
//! 2. What is there already, and right, is not fetched again.
//! 3. No address of a repository is written here: Maven knows its own, or the environment
//!    variable `THERMOCLINE_MAVEN_REPOSITORY` gives the base of one.

use crate::root;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Java package, of which one library is wanted.
pub struct Package {
    /// Maven's names of it: group, artifact and version.
    pub group: &'static str,
    pub artifact: &'static str,
    pub version: &'static str,
    pub jar_sha256: &'static str,
    /// The library in it.
    pub member: &'static str,
    pub library_sha256: &'static str,
    /// What the library is called once it is taken out, below the folder of what was fetched.
    pub library: &'static str,
}

pub const ROCKSDB: Package = Package {
    group: "org.rocksdb",
    artifact: "rocksdbjni",
    version: "11.8.1",
    jar_sha256: "628ed387887f4a431df480857954df2a28b4389bfe24858ccdec611cabf65dbf",
    member: "librocksdbjni-linux64.so",
    library_sha256: "265c656af5c6502cb8d71db1a74858509f706cc47f1a5b6f603c736d11ce677d",
    library: "lib/librocksdb.so",
};

/// Debian's packages: what for, the file that shows it is there, and its name.
const PACKAGES: [(&str, &[&str], &str); 4] = [
    ("LevelDB", &["libleveldb.so"], "libleveldb-dev"),
    ("the bindings of RocksDB", &["libclang.so", "libclang-14.so.1"], "libclang1-14"),
    ("the headers those need", &["14/include/stdbool.h"], "libclang-common-14-dev"),
    ("RocksDB's own programs", &["libgflags.so"], "libgflags-dev"),
];

/// Sources of RocksDB's own benchmark that its library does not have.
const DB_BENCH_SOURCES: [&str; 6] = [
    "tools/db_bench",
    "tools/db_bench_tool",
    "tools/tool_hooks",
    "tools/simulated_hybrid_file_system",
    "test_util/testutil",
    "test_util/transaction_test_util",
];

/// Those of RocksDB's own stress test.
const DB_STRESS_SOURCES: [&str; 20] = [
    "db_stress_tool/db_stress",
    "db_stress_tool/batched_ops_stress",
    "db_stress_tool/cf_consistency_stress",
    "db_stress_tool/db_stress_common",
    "db_stress_tool/db_stress_compaction_service",
    "db_stress_tool/db_stress_compression_manager",
    "db_stress_tool/db_stress_driver",
    "db_stress_tool/db_stress_filters",
    "db_stress_tool/db_stress_gflags",
    "db_stress_tool/db_stress_listener",
    "db_stress_tool/db_stress_shared_state",
    "db_stress_tool/db_stress_test_base",
    "db_stress_tool/db_stress_tool",
    "db_stress_tool/db_stress_wide_merge_operator",
    "db_stress_tool/expected_state",
    "db_stress_tool/expected_value",
    "db_stress_tool/multi_ops_txns_stress",
    "db_stress_tool/no_batched_ops_stress",
    "test_util/testutil",
    "test_util/transaction_test_util",
];

/// Those of RocksDB's own test of an environment, and of what tests it.
const ENV_TEST_SOURCES: [&str; 2] =
    ["test_util/testharness", "third-party/gtest-1.8.1/fused-src/gtest/gtest-all"];
const ENV_TEST: &str = "env/env_basic_test";
/// The names of files in it, which are no tables', logs' or blobs'.
const ENV_TEST_NAMES: [&str; 8] = ["f", "f1", "f2", "g", "b", "file", "test_file", "non_existent"];

/// Where the linker looks for libraries of the system.
const LIBRARY_FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/llvm-14/lib",
    "/usr/lib/clang",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
];

/// What is there to build the rivals with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// RocksDB's library, fetched and checked, and what its bindings need.
    pub rocksdb: bool,
    /// LevelDB's library, installed.
    pub leveldb: bool,
}

impl Found {
    /// Looks without fetching.
    pub fn look() -> Self {
        let installed = |index: usize| PACKAGES[index].1.iter().any(|file| in_system(file));
        Self { rocksdb: library().exists() && installed(1) && installed(2), leveldb: installed(0) }
    }

    /// Cargo features of the rivals' workspace that can be built.
    pub fn features(self) -> String {
        let pairs = [(self.rocksdb, "rocksdb"), (self.leveldb, "leveldb")];
        let names: Vec<&str> =
            pairs.iter().filter(|(there, _)| *there).map(|(_, name)| *name).collect();
        names.join(",")
    }
}

fn in_system(file: &str) -> bool {
    LIBRARY_FOLDERS.iter().any(|folder| Path::new(folder).join(file).exists())
}

/// What is missing to link RocksDB's own programs.
pub fn missing_for_programs() -> Option<String> {
    let (_, files, package) = PACKAGES[3];
    let is_there = files.iter().any(|file| in_system(file));
    (!is_there).then(|| format!("apt install {package}"))
}

/// Where all that was fetched lies.
pub fn folder() -> PathBuf {
    root().join("rivals/.fetched")
}

fn library() -> PathBuf {
    ROCKSDB.path()
}

/// `cargo xtask rivals ...`: true where everything asked for is there.
pub fn run(arguments: &[String]) -> bool {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["fetch"] => {
            let fetched = report("RocksDB", fetch(&ROCKSDB));
            report("Debian's packages", packages()) && fetched
        }
        ["db_bench"] => {
            let built = db_bench().map(|path| format!("built {}", path.display()));
            report("db_bench", built)
        }
        ["status"] => {
            println!("{:?}", Found::look());
            true
        }
        _ => {
            eprintln!(
                "xtask: say `cargo xtask rivals fetch` (gets RocksDB and what LevelDB needs), \
                 `cargo xtask rivals db_bench` (builds RocksDB's own benchmark) or `cargo xtask \
                 rivals status`"
            );
            false
        }
    }
}

fn report(name: &str, outcome: Result<String, String>) -> bool {
    match outcome {
        Ok(text) => println!("rivals: {name}: {text}"),
        Err(text) => {
            eprintln!("rivals: {name}: {text}");
            return false;
        }
    }
    true
}

/// Runs a program; its output is shown only where it fails.
pub fn output_of(program: &str, arguments: &[&str]) -> Result<String, String> {
    let run = Command::new(program).args(arguments).current_dir(root()).output();
    let output = run.map_err(|error| format!("cannot start {program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = [text(&output.stdout), text(&output.stderr)].join("\n");
    Err(format!("{program} failed: {}", said.lines().last().unwrap_or("it did not say why")))
}

fn sha256(path: &Path) -> Result<String, String> {
    let text = output_of("sha256sum", &["--binary", &path.display().to_string()])?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Checks that `path` has the digest; removes it where it has not.
fn checked(path: &Path, expected: &str) -> Result<(), String> {
    let found = sha256(path)?;
    if found == expected {
        return Ok(());
    }
    let shown = path.display();
    fs::remove_file(path).map_err(|error| format!("cannot remove {shown}: {error}"))?;
    Err(format!(
        "{shown} has the SHA-256 {found} and not {expected}; it was removed: fetch it again, and \
         from a repository you trust"
    ))
}

impl Package {
    /// Its library.
    pub fn path(&self) -> PathBuf {
        folder().join(self.library)
    }

    /// The package itself, beside its library: programs in Java need both.
    pub fn jar(&self) -> PathBuf {
        let name = format!("{}-{}.jar", self.artifact, self.version);
        self.path().with_file_name(name)
    }

    fn address(&self, base: &str) -> String {
        let (base, group) = (base.trim_end_matches('/'), self.group.replace('.', "/"));
        let Self { artifact, version, .. } = self;
        format!("{base}/{group}/{artifact}/{version}/{artifact}-{version}.jar")
    }
}

/// Gets a package and takes its library out, where that is not done.
pub fn fetch(package: &Package) -> Result<String, String> {
    let (library, jar, version) = (package.path(), package.jar(), package.version);
    if library.exists() && jar.exists() && checked(&library, package.library_sha256).is_ok() {
        return Ok(format!("{version} is there: {}", library.display()));
    }
    let failed = |error| format!("cannot put {} in place: {error}", library.display());
    let lib = library.parent().ok_or("a library lies in a folder")?;
    fs::create_dir_all(lib).map_err(failed)?;
    download(package, &jar, lib)?;
    checked(&jar, package.jar_sha256)?;
    let (jar_text, lib_text) = (jar.display().to_string(), lib.display().to_string());
    output_of("unzip", &["-o", "-j", "-q", &jar_text, package.member, "-d", &lib_text])
        .map_err(|error| format!("{error}; unzip is Debian's package unzip"))?;
    let unpacked = lib.join(package.member);
    checked(&unpacked, package.library_sha256)?;
    fs::rename(&unpacked, &library).map_err(failed)?;
    Ok(format!("fetched {version}: {}", library.display()))
}

/// RocksDB as it was fetched: the folder of its headers, and that of its library, `librocksdb.so`.
/// None where it was not.
pub fn rocksdb() -> Option<(PathBuf, PathBuf)> {
    let lib = library().exists().then(|| folder().join("lib"))?;
    let include = source(&metadata().ok()?, "librocksdb-sys", "rocksdb/include").ok()?;
    Some((include, lib))
}

/// What Cargo knows of the rivals' workspace.
fn metadata() -> Result<String, String> {
    metadata_of(&root().join("rivals/Cargo.toml"), &["--features=rocksdb"])
}

/// What Cargo knows of a workspace; the sources of its packages are there then.
pub fn metadata_of(manifest: &Path, more: &[&str]) -> Result<String, String> {
    let manifest = manifest.display().to_string();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let words = ["metadata", "--format-version=1", "--manifest-path", &manifest];
    output_of(&cargo, &[&words[..], more].concat())
}

/// A folder in the source of a package.
pub fn source(metadata: &str, package: &str, folder: &str) -> Result<PathBuf, String> {
    let found = source_of(metadata, package).map(|path| path.join(folder));
    found.ok_or_else(|| format!("Cargo knows no source of {package}"))
}

/// RocksDB's own benchmark: its source, which the crate of the bindings carries, with the library
/// that the engine uses too and the allocator that the harness has. Built once.
pub fn db_bench() -> Result<PathBuf, String> {
    let program = folder().join("db_bench");
    if program.exists() {
        return Ok(program);
    }
    let metadata = fetched()?;
    let mut objects = objects(&metadata, &DB_BENCH_SOURCES)?;
    let mimalloc = source(&metadata, "libmimalloc-sys", "c_src/mimalloc/v3")?;
    objects.push(object("gcc", MIMALLOC_FLAGS, &mimalloc, "src/static.c")?);
    link(&objects, &program)
}

/// RocksDB's own stress test, in the same way, with the system's allocator. Built once.
pub fn db_stress() -> Result<PathBuf, String> {
    let program = folder().join("db_stress");
    if program.exists() {
        return Ok(program);
    }
    link(&objects(&fetched()?, &DB_STRESS_SOURCES)?, &program)
}

/// RocksDB's own test of an environment, as it is, and with files that are called like tables:
/// those the plugin keeps on tiers, the others it leaves to the host. Built once.
pub fn env_tests() -> Result<[PathBuf; 2], String> {
    let programs = ["env_basic_test", "env_basic_test-tables"].map(|name| folder().join(name));
    if programs.iter().all(|program| program.exists()) {
        return Ok(programs);
    }
    let metadata = fetched()?;
    let rocksdb = source(&metadata, "librocksdb-sys", "rocksdb")?;
    let own = rocksdb.join(ENV_TEST).with_extension("cc");
    let text = fs::read_to_string(&own).map_err(|error| format!("{}: {error}", own.display()))?;
    let tables = folder().join("env_basic_test-tables.cc");
    fs::write(&tables, called_like_tables(&text)?)
        .map_err(|error| format!("{}: {error}", tables.display()))?;
    let shared = objects(&metadata, &ENV_TEST_SOURCES)?;
    for (source, program) in [own, tables].iter().zip(&programs) {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let object = compiled("g++", ROCKSDB_FLAGS, &rocksdb, source, &name)?;
        link(&[&shared[..], &[object]].concat(), program)?;
    }
    Ok(programs)
}

/// The test's source with the names of tables.
fn called_like_tables(text: &str) -> Result<String, String> {
    ENV_TEST_NAMES.iter().try_fold(text.to_owned(), |text, name| {
        let [in_folder, alone] = [format!("\"/{name}\""), format!("\"{name}\"")];
        match text.contains(&in_folder) {
            true => Ok(text
                .replace(&in_folder, &format!("\"/{name}.sst\""))
                .replace(&alone, &format!("\"{name}.sst\""))),
            false => Err(format!("{ENV_TEST} knows no file {name}; it is another version")),
        }
    })
}

/// What Cargo knows of the rivals' workspace, where the library is there.
fn fetched() -> Result<String, String> {
    match library().exists() {
        true => metadata(),
        false => Err("RocksDB is not there: cargo xtask rivals fetch".to_owned()),
    }
}

/// Sources of RocksDB, compiled.
fn objects(metadata: &str, names: &[&str]) -> Result<Vec<PathBuf>, String> {
    let rocksdb = source(metadata, "librocksdb-sys", "rocksdb")?;
    let object = |name: &&str| object("g++", ROCKSDB_FLAGS, &rocksdb, &format!("{name}.cc"));
    names.iter().map(object).collect()
}

/// Links a program with the library.
fn link(objects: &[PathBuf], program: &Path) -> Result<PathBuf, String> {
    let lib = folder().join("lib").display().to_string();
    // `-rdynamic`: the library takes its memory from the program's allocator too.
    let mut words = vec!["-rdynamic".to_owned(), "-o".to_owned(), program.display().to_string()];
    words.extend(objects.iter().map(|object| object.display().to_string()));
    words.extend([format!("-L{lib}"), format!("-Wl,-rpath,{lib}")]);
    words.extend(["-lrocksdb", "-lgflags", "-pthread"].map(str::to_owned));
    output_of("g++", &words.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(program.to_owned())
}

const ROCKSDB_FLAGS: &str = "-std=c++20 -O2 -w -fno-rtti -DNDEBUG -DOS_LINUX -DGFLAGS=gflags \
                              -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX";
const MIMALLOC_FLAGS: &str = "-O3 -w -DMI_MALLOC_OVERRIDE -DMI_DEBUG=0 -DMI_BUILD_RELEASE \
                              -DNDEBUG -fno-builtin-malloc -ftls-model=initial-exec";

/// Compiles `file` of the source in `folder`, where that is not done; the object.
fn object(compiler: &str, flags: &str, folder: &Path, file: &str) -> Result<PathBuf, String> {
    compiled(compiler, flags, folder, &folder.join(file), &file.replace('/', "-"))
}

/// Compiles a file with the headers in `folder`, where that is not done; the object of that name.
fn compiled(
    compiler: &str,
    flags: &str,
    folder: &Path,
    file: &Path,
    name: &str,
) -> Result<PathBuf, String> {
    let objects = self::folder().join("objects");
    let failed = |error| format!("{}: {error}", objects.display());
    fs::create_dir_all(&objects).map_err(failed)?;
    let object = objects.join(name).with_extension("o");
    if object.exists() {
        return Ok(object);
    }
    let includes = ["", "include", "third-party/gtest-1.8.1/fused-src"];
    let includes = includes.map(|path| format!("-I{}", folder.join(path).display()));
    // An object that a compiler did not end must not be taken for one.
    let unfinished = object.with_extension("new");
    let (source, to) = (file.display().to_string(), unfinished.display().to_string());
    let mut words: Vec<&str> = flags.split_whitespace().collect();
    words.extend(includes.iter().map(String::as_str));
    words.extend(["-c", &source, "-o", &to]);
    output_of(compiler, &words)?;
    fs::rename(&unfinished, &object).map_err(failed)?;
    Ok(object)
}

/// Where Cargo has the source of `package`, out of what `cargo metadata` says.
fn source_of(metadata: &str, package: &str) -> Option<PathBuf> {
    let manifests = metadata.split("\"manifest_path\":\"").skip(1);
    let mut paths = manifests.filter_map(|rest| rest.split('"').next()).map(Path::new);
    let wanted = format!("{package}-");
    let found = paths.find(|path| {
        let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        folder.is_some_and(|name| name.starts_with(&wanted))
    });
    Some(found?.parent()?.to_path_buf())
}

/// Gets the package, by the repository the environment names or by Maven's own settings.
fn download(package: &Package, jar: &Path, into: &Path) -> Result<(), String> {
    if let Ok(base) = std::env::var("THERMOCLINE_MAVEN_REPOSITORY") {
        let (target, from) = (jar.display().to_string(), package.address(&base));
        return output_of("curl", &["-fsSL", "--retry", "3", "-o", &target, &from]).map(drop);
    }
    let Package { group, artifact, version, .. } = package;
    let artifact = format!("-Dartifact={group}:{artifact}:{version}");
    let into = format!("-DoutputDirectory={}", into.display());
    output_of("mvn", &["-B", "-q", "dependency:copy", &artifact, &into]).map(drop).map_err(|error| {
        format!(
            "{error}; install Debian's package maven, or set THERMOCLINE_MAVEN_REPOSITORY to the \
             base address of a Maven repository"
        )
    })
}

/// Installs what is missing of Debian's packages where this is root, and says what to install
/// otherwise.
fn packages() -> Result<String, String> {
    let missing: Vec<_> =
        PACKAGES.iter().filter(|(_, files, _)| !files.iter().any(|file| in_system(file))).collect();
    if missing.is_empty() {
        return Ok("LevelDB and libclang are there".to_owned());
    }
    let names: Vec<&str> = missing.iter().map(|(_, _, package)| *package).collect();
    let why: Vec<&str> = missing.iter().map(|(reason, _, _)| *reason).collect();
    let root_user = output_of("id", &["-u"])? == "0";
    let mut install = vec!["install", "-y", "-q"];
    install.extend(&names);
    if !root_user {
        let names = names.join(" ");
        return Err(format!("missing for {}: apt-get install {names}", why.join(" and ")));
    }
    output_of("apt-get", &["update", "-q"])?;
    output_of("apt-get", &install)?;
    Ok(format!("installed {}", names.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_another_digest_is_refused_and_removed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("library.so");
        fs::write(&path, "abc").unwrap();
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        checked(&path, digest).unwrap();
        let error = checked(&path, ROCKSDB.jar_sha256).unwrap_err();
        assert!(error.contains(digest) && error.contains("removed"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn the_base_of_a_repository_may_end_in_a_slash() {
        let expected = "x://y/org/rocksdb/rocksdbjni/11.8.1/rocksdbjni-11.8.1.jar";
        let address = |base| ROCKSDB.address(base);
        assert_eq!([address("x://y"), address("x://y/")], [expected, expected]);
    }

    #[test]
    fn the_source_of_a_package_is_found_by_its_folder() {
        let text = "{\"manifest_path\":\"/r/rocksdb-0.1/Cargo.toml\"},\
                    {\"manifest_path\":\"/r/librocksdb-sys-0.1+2/Cargo.toml\",\"x\":1}";
        let expected = Some(PathBuf::from("/r/librocksdb-sys-0.1+2"));
        assert_eq!(source_of(text, "librocksdb-sys"), expected);
        assert_eq!(source_of(text, "sled"), None);
    }

    #[test]
    fn the_test_of_an_environment_gets_names_of_tables_and_another_version_is_refused() {
        let text: String = ENV_TEST_NAMES.iter().map(|name| format!("(\"/{name}\")")).collect();
        let tables = called_like_tables(&(text.clone() + "(\"f\")(\"/niu\")")).unwrap();
        assert!(tables.starts_with("(\"/f.sst\")(\"/f1.sst\")"), "{tables}");
        assert!(tables.ends_with("(\"/non_existent.sst\")(\"f.sst\")(\"/niu\")"), "{tables}");
        let error = called_like_tables(&text.replace("\"/g\"", "")).unwrap_err();
        assert!(error.contains("no file g"), "{error}");
    }

    #[test]
    fn only_what_is_there_is_built() {
        assert_eq!(Found { rocksdb: true, leveldb: true }.features(), "rocksdb,leveldb");
        assert_eq!(Found { rocksdb: false, leveldb: true }.features(), "leveldb");
        assert_eq!(Found { rocksdb: false, leveldb: false }.features(), "");
    }

    #[test]
    fn a_program_that_fails_or_is_not_there_is_named() {
        assert!(output_of("no-such-program", &[]).unwrap_err().contains("no-such-program"));
        assert!(output_of("false", &[]).unwrap_err().contains("false failed"));
    }
}

/* Search: pages for readers come before generated pages of the API, the gallery and decisions.  A page also has words
   that users search for: conf.py adds them to the index of the page, and each of them in a query raises it. */
const SUBJECTS = {
  "audit": "audits empirical lower bound violation couplings controls",
  "engines": "kafka flink spark dask cluster distributed databricks topic broker exactly once",
  "experiments": "sweep simulate compare mechanisms reproduce results figures scenario",
  "explanation/adaptive": "adaptive block length algorithm works",
  "explanation/beside_others": "comparison compare versus alternatives libraries opendp tumult pipelinedp diffprivlib google pydp beam",
  "explanation/exact_noise": "exact floating point leak vulnerability integers why works",
  "explanation/papers": "paper papers errata wrong mistakes authors reproduce figures cite citation source",
  "howto/auditing": "audit test attack refute check floating point vulnerability",
  "howto/choosing": "choose bound clip clamp threshold sensitivity unit negative values outliers maximum contribution",
  "howto/containers": "container docker podman kubernetes aws azure google cloud ecs fargate image deploy secret vault",
  "install": "install pip conda wheel offline without internet windows macos mac linux arm python version first call slow compile tab completion configuration config file toml options extras requirements",
  "interop": "opendp duckdb sql polars xarray jax pytorch replace numpy laplace add noise",
  "ledger": "ledger budget limit accountant accounting spend spent remaining month monthly year yearly per person total two releases twice again same data exceeded exceed refused error new every night nightly day",
  "local": "local ldp randomized randomised response report client server untrusted differential privacy histogram distribution",
  "many_streams": "many streams thousands meters sensors devices fleet snapshot",
  "noise": "noise laplace gaussian discrete geometric proof sampler random generator zcdp rho",
  "points": "points location map geo gps spatial polygon box heat phdstream counters synthetic data",
  "privacy": "privacy proof lemma composition adjacent unit persons rows group",
  "reference/glossary": "glossary definition meaning term words",
  "reference/reviewer": "gdpr legal compliance data protection officer reviewer lawyer ethics approval",
  "reference/security": "security report vulnerability threat model",
  "sharp_edges": "limitations pitfalls mistakes dangers side channel timing two people share rows joint account lost mistake",
  "speed": "speed fast faster slow performance benchmark throughput memory cores parallel first call usage ram",
  "state": "state kill killed restart crash resume checkpoint recover recovery power backup replay continue lost",
  "streams": "stream adaptive tops pak interval confidence error range sum w-event window holdout theta baseline",
  "streams_proofs": "proof stream adaptive tops pak threshold smooth sensitivity tree",
  "tables": "table group groupby keys private rare count sum mean average variance quantiles quantile median percentile histogram distinct unique person interval confidence daylight saving time zone null missing nan regression hierarchy pandas polars dataframe frame excel spreadsheet csv parquet",
  "tables_proofs": "proof tables sensitivity coverage lemma group by private keys shards calendar",
  "tutorials/guarantee": "guarantee epsilon delta interpret explain meaning seed reproducible simulation",
  "tutorials/hourly_totals": "first steps getting started quickstart beginner example hourly totals",
  "tutorials/many_meters": "many meters sensors streams fleet",
  "tutorials/own_mechanism": "own custom mechanism write extend plugin",
  "tutorials/places": "places location map geo synthetic points bikes cars data trajectories",
  "tutorials/planning": "choose epsilon plan accuracy error before budget how large",
  "tutorials/service": "service restart crash kill endless live online checkpoint daemon",
  "tutorials/survey": "survey randomized randomised response questionnaire poll local device untrusted differential privacy histogram"
};
var Scorer = {
  score: ([name, , , , score]) => {
    const asked = new URLSearchParams(location.search).get("q") || "";
    const stem = (text) => text.toLowerCase().split(/[^\w-]+/).map((word) => new Stemmer().stemWord(word));
    const subjects = stem(SUBJECTS[name] || "");
    score += 5 * stem(asked).filter((word) => word && subjects.includes(word)).length;
    if (/^(tutorials|howto|explanation)\//.test(name)) return score + 9;
    if (!name.includes("/")) return score + 8;
    if (/^reference\/\w+$/.test(name)) return score + 2;
    return /^(adr|gallery)\//.test(name) ? score - 6 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 4, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

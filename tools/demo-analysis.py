# What the agent of `make demo` writes when it is asked: "Dedupe
# q3-signups.csv, chart signups by week, give me the png and a clean csv."
# It runs inside the sandbox, with the rules of rules.md in mind.

import matplotlib.pyplot as plt
import pandas as pd

START, END = pd.Timestamp("2025-07-01"), pd.Timestamp("2025-09-30")

raw = open("attachments/q3-signups.csv", "rb").read()
try:
    text = raw.decode("utf-8-sig")
except UnicodeDecodeError:
    text = raw.decode("iso-8859-1")
open("q3-signups.utf8.csv", "w", encoding="utf-8", newline="").write(text)
delimiter = ";" if ";" in text.split("\n", 1)[0] else ","

rows = pd.read_csv("q3-signups.utf8.csv", sep=delimiter, dtype=str,
                   keep_default_na=False)
read = len(rows)
lacking = {"signup_id", "email", "signup_date"} - set(rows.columns)
if lacking:
    raise SystemExit("q3-signups.csv lacks the columns "
                     + ", ".join(sorted(lacking)))
rows = rows[rows["signup_id"] != "signup_id"].copy()     # glued exports

rows["email"] = rows["email"].str.strip().str.lower()
usable = rows["email"].str.contains(r"^[^@\s]+@", regex=True)


def days(text):
    """The day each text means, NaT where it means none."""
    serial = pd.to_numeric(text.where(text.str.fullmatch(r"\d{5}")))
    day = pd.Timestamp("1899-12-30") + pd.to_timedelta(serial, unit="D")
    stamp = text.where(text.str.match(r"\d{4}-\d\d-\d\dT"))
    stamp = pd.to_datetime(stamp, format="ISO8601", utc=True, errors="coerce")
    day = day.fillna(stamp.dt.tz_localize(None).dt.normalize())
    for form in ("%Y-%m-%d", "%d/%m/%Y", "%d.%m.%Y", "%d %b %Y", "%b %d, %Y"):
        day = day.fillna(pd.to_datetime(text, format=form, errors="coerce"))
    return day


rows["date"] = days(rows["signup_date"].str.strip())
kept = rows[usable & rows["date"].between(START, END)].copy()
kept["number"] = kept["signup_id"].astype(int)
clean = (kept.sort_values(["date", "number"])
             .drop_duplicates("email")
             .sort_values("number"))

out = clean.drop(columns=["signup_date", "number"])
out["date"] = out["date"].dt.strftime("%Y-%m-%d")
out.to_csv("q3-signups-deduped.csv", index=False)

monday = clean["date"] - pd.to_timedelta(clean["date"].dt.day_of_week, unit="D")
weeks = pd.date_range("2025-06-30", "2025-09-29", freq="W-MON")
weekly = monday.value_counts().reindex(weeks, fill_value=0)
weekly.index = weekly.index.strftime("%Y-%m-%d")
weekly.rename_axis("week_start").rename("signups") \
      .to_csv("signups-by-week.csv")

figure, axes = plt.subplots(figsize=(9, 4.5))
axes.bar(weekly.index.str[5:], weekly.values, color="#3b6fb6")
axes.set_title("Signups by week, Q3 2025")
axes.set_xlabel("week starting (Monday)")
axes.set_ylabel("distinct signups")
axes.tick_params(axis="x", rotation=45)
figure.tight_layout()
figure.savefig("signups-by-week.png", dpi=120)

print(f"{read} rows read, {len(clean)} people, "
      f"{len(kept) - len(clean)} duplicates dropped, "
      f"{len(rows) - len(kept)} rows not usable")
